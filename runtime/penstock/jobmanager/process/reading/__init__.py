"""Data of running jobs and of their checkpoints that REST reads: live state, stored state, measurements."""
