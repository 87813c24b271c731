"""The measured programs. Each runs as a separate process in the environment of its system."""
