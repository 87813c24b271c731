"""Programs of a session cluster. Each program runs in a separate process, which uses the session's Spark cluster."""
