"""The defaults of a platform for FlinkJobs, which are in ConfigMaps, and the time when a change of them takes effect."""
