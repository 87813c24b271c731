"""The kinds of group `penstock.dev/v1`, as pydantic models.

May know: pydantic. Must not know: Kubernetes clients, kopf, the engine. The CRDs in `crds/` and the reference in
`docs/operator/reference.md` are generated from these classes (`python -m penstock_operator.api.generate`).
"""

from __future__ import annotations

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec, FlinkSnapshotStatus
from penstock_operator.api.status import FlinkJobStatus

GROUP = "penstock.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "FlinkJobSpec",
    "FlinkJobStatus",
    "FlinkSnapshotSpec",
    "FlinkSnapshotStatus",
]
