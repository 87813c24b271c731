"""The operators of jobs in batch mode: their input, its order, and the time of their timers."""
