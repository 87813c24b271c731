"""The compiled plan of Flink's planner as typed Python objects. Everything that Penstock does not know is refused by its name."""
