"""Pickling of code and of objects of the user's program, to send them between processes of one job."""
