"""Log files of the cluster's processes: where they lie, and how a worker is asked for its own."""
