"""The window operator: an assigner, a trigger, an evictor and a function on a stream.

The operator has a general implementation, and fast implementations for grouped windows and for sessions.
"""
