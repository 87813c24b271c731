"""Savepoints of the operator: record each savepoint until it has a FlinkSnapshot, take savepoints by nonce and on a
schedule, and delete expired savepoints.
"""
