"""Penstock's Kubernetes operator: it runs FlinkJobs and changes them without losing or repeating a record.

The packages, and what each may know:

- `api`        the kinds as the user writes them; knows nothing but pydantic. `crds/` is generated from it.
- `reconcile`  what to do next. Its heart (`decide`) is pure: no clock, no network, no cluster.
- `resources`  what a job looks like in Kubernetes; pure builders from a spec to manifests.
- `kube`       the Kubernetes API behind one small protocol.
- `engine`     the REST API of a running job behind one small protocol.
- `storage`    checkpoints and savepoints behind one small protocol.
- `handlers`   the only module that knows kopf.
"""

from __future__ import annotations

__version__ = "0.1.0"
