"""The compiled plan of Flink's planner as typed Python objects. If a plan contains a part that Penstock does not know, an error names this part."""
