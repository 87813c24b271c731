"""Object stores.

The seam to the outside world of storage, its implementations, retries, and a double that fails on purpose.
"""
