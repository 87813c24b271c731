"""A job that verifies itself, its processes, and faults for both.

This module imports nothing, because workers import the job from this package and should not load the JobManager.
"""
