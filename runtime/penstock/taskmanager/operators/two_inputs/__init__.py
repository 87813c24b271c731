"""Operators with two inputs: connected streams, broadcast state, the interval join."""
