"""Savepoints of the operator: record each until it has a FlinkSnapshot, take them by nonce and on a schedule, delete
expired ones.
"""
