"""Checkpoints and savepoints: one small protocol and its implementation."""
