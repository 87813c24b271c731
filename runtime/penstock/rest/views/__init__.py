"""Facts of the engine -> Flink's shapes. Pure functions, one module per resource."""
