"""What runs in Spark's JVMs.

The Java sources, how they are compiled, and the archive of classes that starts JVMs faster.
"""
