"""What a job can fail with, what a dead worker died of, and whether the job is restarted."""
