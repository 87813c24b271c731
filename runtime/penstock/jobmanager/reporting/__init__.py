"""Metrics and traces on their way to reporters: which there are, what they get, and when."""
