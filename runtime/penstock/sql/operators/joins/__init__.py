"""Joins. An operator receives the rows of both sides of one key. NULL columns replace the partner that an outer row does not have."""
