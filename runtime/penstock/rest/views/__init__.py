"""Facts of the engine -> Flink's shapes. Functions that change nothing, one module per resource, and what several share."""
