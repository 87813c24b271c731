"""Declared columns: exact casts, nested values, and the declared columns of files and batches."""
