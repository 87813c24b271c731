"""What a job can fail with, what a dead worker died of, and whether the job is restarted.

How a program asks for a restart strategy, and how one is configured, is in `common.restart_strategy`.
"""
