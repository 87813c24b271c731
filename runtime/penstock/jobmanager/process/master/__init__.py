"""The deployed processes of a JobManager: one for a single job, and one for the programs that clients send."""
