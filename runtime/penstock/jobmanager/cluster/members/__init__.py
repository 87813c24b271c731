"""The TaskManagers of a cluster: their registration, the JobManager's records of them, and requests to them."""
