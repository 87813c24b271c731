"""The kinds of group `penstock.dev`, as pydantic models.

May know: pydantic. Must not know: Kubernetes clients, kopf, the engine. The CRDs in `crds/` and the reference in
`docs/operator/reference.md` are generated from these classes (`python -m penstock_operator.api.generate`).
"""

from __future__ import annotations

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec, FlinkSnapshotStatus
from penstock_operator.api.status import FlinkJobStatus
from penstock_operator.api.version import API_VERSION, GROUP, VERSION

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "FlinkJobSpec",
    "FlinkJobStatus",
    "FlinkSnapshotSpec",
    "FlinkSnapshotStatus",
]
