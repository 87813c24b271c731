"""KafkaSink: records become messages; exactly once by transactions that the JobManager commits."""
