"""The programs that are measured: each runs by itself, in the environment of its system."""
