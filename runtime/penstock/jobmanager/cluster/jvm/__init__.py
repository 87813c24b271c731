"""The code in Spark's JVMs.

The Java sources, their compilation, and the archive of classes that makes JVMs start faster.
"""
