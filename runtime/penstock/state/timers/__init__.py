"""Timers of a keyed operator: the interface, and the service over timer tables."""
