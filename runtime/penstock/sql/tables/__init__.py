"""Connectors of SQL tables: Flink's option names over Penstock's sources and sinks."""
