"""The kinds of the API group `penstock.dev`, as pydantic models.

This package may import pydantic. It must not import Kubernetes clients, kopf or the engine. `python -m
penstock_operator.api.schema.generate` generates the CRDs in `crds/` and the reference in `docs/operator/reference.md` from
these classes.
"""

from __future__ import annotations

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec, FlinkSnapshotStatus
from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
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
