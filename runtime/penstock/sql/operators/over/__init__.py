"""Aggregates of OVER windows: each row with the aggregates of the rows before it."""
