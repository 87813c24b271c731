"""A JobManager process that runs jobs: its cluster, its Dispatcher, the gateway of REST, and its logs."""
