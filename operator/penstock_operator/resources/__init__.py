"""What a job looks like in Kubernetes: pure functions from a spec to manifests, tested against golden files.

May know: `api`, and the engine's memory model (`penstock.common.config.memory`). Must not know: clients, the loop, the state of anything. Secrets' values are arguments.
"""
