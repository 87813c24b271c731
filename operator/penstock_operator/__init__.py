"""Penstock's Kubernetes operator: it runs FlinkJobs and changes them without losing or repeating a record.

The packages, from the top; each may know those below it and none above (a contract in `pyproject.toml`):

- `process`    what runs and serves the operator's process; `process.watches` is the only module that knows kopf.
- `snapshot`   one FlinkSnapshot: what to do next, and doing it.
- `reconcile`  one FlinkJob: what to do next, and doing it. Its heart (`decide`) is pure: no clock, no network, no cluster.
- `engine`     the REST API of a running job behind one small protocol.
- `storage`    checkpoints and savepoints behind one small protocol.
- `kube`       the Kubernetes API behind one small protocol.
- `resources`  what a job looks like in Kubernetes; pure builders from a spec to manifests.
- `api`        the kinds as the user writes them; knows nothing but pydantic. `crds/` is generated from it.
"""

from __future__ import annotations

__version__ = "0.1.0"
