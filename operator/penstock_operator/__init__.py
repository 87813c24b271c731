"""Penstock's Kubernetes operator: it runs FlinkJobs and changes them without losing or repeating a record.

The packages, from top to bottom. Each one may import the packages below it and none above (a contract in
`pyproject.toml`):

- `process`    the process of the operator. Only `process.watches` uses kopf.
- `snapshot`   one FlinkSnapshot: the next step and its execution.
- `reconcile`  one FlinkJob: the next step and its execution. Its core (`decide`) is pure: no clock, no network, no cluster.
- `engine`     the REST API of a running job: one small protocol and its implementation.
- `storage`    checkpoints and savepoints: one small protocol and its implementation.
- `kube`       the Kubernetes API: one small protocol and its implementation.
- `resources`  the Kubernetes objects of a job: pure functions from a spec to manifests.
- `api`        the kinds as the user writes them. It only imports pydantic. `crds/` is generated from it.
"""

from __future__ import annotations

__version__ = "0.2.0"
