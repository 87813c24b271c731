"""Savepoints and checkpoints by their path.

The package writes, finds, verifies, lists and disposes of them. Reading them does not need the program, and only
reading their contents needs the engine.
"""
