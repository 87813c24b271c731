"""The health of a running job without an operation: its progress, the terminations of its containers, and its
recovery.
"""
