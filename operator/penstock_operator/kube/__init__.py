"""The Kubernetes API: one protocol (`Cluster`), its HTTP implementation, credentials, the Lease.

This package may use HTTP. It knows nothing about FlinkJobs except their API paths. Tests use an API server in memory
with the same protocol, which can crash after any call.
"""
