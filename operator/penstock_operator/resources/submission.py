"""A job that a FlinkCluster runs: the record of its start, and the program and the settings that the operator sends.

The record is a ConfigMap. Like the Deployments of other jobs, it names the incarnation and the revision that should
run. The operator writes it before it sends the program, and so knows after a crash what it has started.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

from penstock_operator.api.cluster_fields import CLUSTER_KEYS
from penstock_operator.resources.configuration import configuration
from penstock_operator.resources.deployments import restore_option
from penstock_operator.resources.names import INCARNATION, REVISION
from penstock_operator.resources.program import REQUIREMENTS, SCRIPT, SQL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.resources.incarnation import Incarnation
    from penstock_operator.resources.names import Owner

RECORD = "submission"
"""Role of the record."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def record_name(owner: Owner) -> str:
    """Return the name of the record of a FlinkJob."""
    return f"{owner.name}-{RECORD}"


def record(owner: Owner, incarnation: Incarnation, *, runs: bool) -> dict[str, Any]:
    """Return the record. `runs` is whether the incarnation should run."""
    marks = {REVISION: incarnation.revision, INCARNATION: incarnation.job_id}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owner.metadata(record_name(owner), RECORD, **marks),
        "data": {
            "cluster": incarnation.spec.cluster or "",
            "runs": json.dumps(runs),
            "start": json.dumps(restore_option(incarnation.restore)),
        },
    }


def bundle(owner: Owner, spec: FlinkJobSpec) -> tuple[str, bytes]:
    """Return the name and the content of an archive with the program. Equal programs give equal archives."""
    source = spec.job.source
    files = dict(source.files) if source is not None else {}
    if spec.job.script is not None:
        files[SCRIPT] = spec.job.script
    if spec.job.sql is not None:
        files[SQL] = spec.job.sql
    if spec.job.requirements:
        files[REQUIREMENTS] = "".join(f"{line}\n" for line in spec.job.requirements)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return f"{owner.name}.zip", packed.getvalue()


def fetch(owner: Owner, spec: FlinkJobSpec, secret: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the request by which the session fetches the program. Return None if the operator has the program (`bundle`).

    Args:
        secret: content of the Secret with the credentials of the git server.
    """
    source = spec.job.source
    if source is None or source.files:
        return None
    body: dict[str, Any] = {"name": owner.name, "requirements": list(spec.job.requirements)}
    if source.git is not None:
        access = {key: secret[key] for key in ("username", "password") if key in secret}
        return {**body, "url": source.git.url, "commit": source.git.commit, "path": source.git.path or "", **access}
    return {**body, "url": source.url, "sha256": source.sha256}


def start(incarnation: Incarnation) -> dict[str, Any]:
    """Return the request that starts the program."""
    spec, restore = incarnation.spec, incarnation.restore
    body: dict[str, Any] = {
        "entryClass": spec.job.entry or (SCRIPT if spec.job.sql is None else SQL),
        "programArgsList": list(spec.job.args),
        "parallelism": incarnation.parallelism,
        "jobId": incarnation.job_id,
        "flinkConfiguration": _configuration(spec),
    }
    if incarnation.allow_non_restored_state:
        body["allowNonRestoredState"] = list(incarnation.allow_non_restored_state)
    if restore.kind not in ("Fresh", "Latest") and restore.path is not None:
        body["savepointPath"] = restore.path
    return body


def _configuration(spec: FlinkJobSpec) -> dict[str, str]:
    """Return the settings of the job as texts. The session has all other settings."""
    own = {key: value for key, value in configuration(spec).items() if not key.startswith(CLUSTER_KEYS)}
    return {key: json.dumps(value) if isinstance(value, bool) else str(value) for key, value in own.items()}
