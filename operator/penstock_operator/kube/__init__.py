"""The Kubernetes API: one protocol (`Cluster`), its HTTP implementation, credentials, the Lease.

May know: HTTP. Must not know FlinkJobs beyond their place in the API. Tests put an API server in memory behind the
same protocol, which can die after any call.
"""
