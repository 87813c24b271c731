"""One job from its start to its end: the JobMaster, its epochs, its requests, and its parallelism."""
