"""Penstock: Flink-style stateful streaming jobs, written in Python, on Spark, under Kubernetes."""

__version__ = "0.2.0"
