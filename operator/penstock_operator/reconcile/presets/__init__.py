"""The defaults that a platform sets for FlinkJobs in ConfigMaps, and the time when a changed default takes effect."""
