"""Savepoints and checkpoints by their path.

Written, found, verified, listed, disposed of; readable without the program, and all but their contents without the engine.
"""
