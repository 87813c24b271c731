"""The Kubernetes objects of a job: pure functions from a spec to manifests, tested against golden files.

This package may import `api` and the engine's memory model (`penstock.common.config.memory`). It must not import
clients or the loop, and it keeps no state. The values of Secrets are arguments.
"""
