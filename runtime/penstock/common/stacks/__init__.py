"""Stacks of a process's threads: one snapshot, or samples over some seconds."""
