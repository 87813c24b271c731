"""The window operator.

Assigner, trigger, evictor and function on a stream; a general way, and a fast one for grouped windows.
"""
