"""What a platform presets for FlinkJobs in ConfigMaps, and when a change of it takes effect."""
