"""The REST API of a running job behind one small protocol, and its HTTP implementation.

May know: Flink's REST paths and shapes. Must not know Kubernetes or the loop.
"""
