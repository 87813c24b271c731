"""Reporters of metrics and traces: their selection, their data and their schedule."""
