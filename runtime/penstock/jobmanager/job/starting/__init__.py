"""The start of an attempt: what it waits for, and its steps."""
