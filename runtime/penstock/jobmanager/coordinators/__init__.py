"""The JobManager's part of sources and sinks: splits, watermark alignment and commits. This package calls the user's code."""
