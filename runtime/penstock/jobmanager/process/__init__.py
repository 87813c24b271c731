"""The processes: `python job.py`, `penstock master`, `penstock worker`; the jobs they hold, and REST's way to them."""
