"""Timers of a keyed operator: the contract, and the service over timer tables."""
