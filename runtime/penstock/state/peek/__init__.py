"""Look-ups of one key in live state: its stored form from a task, and the row that a client gets from it."""
