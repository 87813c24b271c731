"""The REST API of a running job: one small protocol and its HTTP implementation.

This package knows the paths and the formats of Flink's REST API. It must not use Kubernetes or the loop.
"""
