"""Flink's planner: its jars, and a Java process that compiles statements into plans. The process needs no cluster."""
