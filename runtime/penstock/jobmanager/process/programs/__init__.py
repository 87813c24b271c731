"""Programs of a session cluster: each runs in a process of its own, which uses the session's Spark cluster."""
