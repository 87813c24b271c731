"""Records in batches, as Python objects or as Arrow columns.

Operators, connectors and formats exchange these batches.
"""
