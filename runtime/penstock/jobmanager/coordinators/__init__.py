"""The JobManager's half of sources and sinks: splits, watermark alignment, commits. They call the user's code."""
