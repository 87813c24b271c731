"""The use of Spark.

TaskManagers, slots, settings, secrets and DataFrames. `jvm` contains the code that runs in Spark's JVMs.
"""
