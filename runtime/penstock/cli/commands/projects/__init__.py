"""Commands that create a project: a new one, or a copy of an example."""
