"""Savepoints and checkpoints by their path.

Written, found, verified, listed, disposed of; readable without the engine.
"""
