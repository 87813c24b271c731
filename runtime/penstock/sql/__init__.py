"""Flink SQL: Flink's planner compiles a statement, and Penstock's operators run the compiled plan."""
