"""Log files of the cluster's processes: their locations, and requests for the logs of a worker."""
