"""Records in batches, as Python objects or as Arrow columns.

What operators, connectors and formats hand to each other.
"""
