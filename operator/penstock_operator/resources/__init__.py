"""What a job looks like in Kubernetes: pure functions from a spec to manifests, tested against golden files.

May know: `api`. Must not know: clients, the loop, the state of anything. Secrets' values are arguments.
"""
