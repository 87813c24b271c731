"""Pickling of code and of objects of the user's program, for the way between processes of one job."""
