"""What Spark is asked for.

Master, workers, slots, settings, secrets, DataFrames. `jvm` is what runs in Spark's JVMs.
"""
