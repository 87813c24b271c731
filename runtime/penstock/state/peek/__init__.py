"""Look-ups of one key in live state. A task returns the stored form, and the client converts it to a row."""
