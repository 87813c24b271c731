"""Object stores.

The package has the interface to storage, its implementations, retries, and a test double that fails on purpose.
"""
