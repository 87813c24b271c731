"""Carries out one action, so that it may be done twice."""
