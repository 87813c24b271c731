"""The processes (`python job.py`, `penstock master`, `penstock worker`), their jobs, and REST's access to them."""
