"""Conversions of the engine's facts to Flink's shapes: pure functions, one module per resource, and shared ones."""
