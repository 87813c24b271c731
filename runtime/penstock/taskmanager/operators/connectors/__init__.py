"""The operators that drive the readers of sources and the writers of sinks."""
