"""The SQL gateway: Flink's REST API for SQL sessions, statements and pages of results."""
