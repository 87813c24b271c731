"""Information about the user's program for messages: its line, the relevant frames of an exception, and warnings that appear once."""
