"""Checkpoints and savepoints, behind one small protocol."""
