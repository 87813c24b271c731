"""The failures of a job, the cause of a worker's death, and the decision to restart the job.

`common.restart_strategy` contains the API and the configuration of restart strategies.
"""
