"""Functions that ask a service and do not wait for it."""
