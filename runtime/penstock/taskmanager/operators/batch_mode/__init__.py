"""Operators of jobs in batch mode: what they get, in which order, and when their timers fire."""
