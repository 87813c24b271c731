"""The TaskManagers of a cluster: their registration, the JobManager's records of TaskManagers, and requests to
TaskManagers."""
