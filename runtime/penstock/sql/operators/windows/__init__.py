"""Windows of SQL: their assignment, aggregates, joins, top-N and deduplication. All times of windows are milliseconds of local time."""
