"""A job that checks itself, the processes it runs on, and what may be done to both.

Nothing is imported here: the workers import the job from this package, and should not get the JobManager with it.
"""
