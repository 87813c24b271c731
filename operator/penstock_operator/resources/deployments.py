"""The two Deployments of a job, and the pod that checks a revision before they are changed."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.resources import program
from penstock_operator.resources.configuration import (
    CONFIG_FILE,
    PARALLELISM_KEY,
    PARALLELISM_VARIABLE,
    configuration,
    render,
)
from penstock_operator.resources.memory import master_resources, worker_resources
from penstock_operator.resources.names import (
    APPLIED,
    BLOCKS_PORT,
    CONFIG,
    DRIVER_PORT,
    HEALTH_PORT,
    INCARNATION,
    MASTER_PORT,
    OPERATION,
    REST_PORT,
    REVISION,
    STANDBY,
    Owner,
)
from penstock_operator.resources.pods import PodParts, incarnation_labels, pod_template
from penstock_operator.resources.probes import HEALTH_VARIABLE, master_probes, worker_probes

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.snapshots import Restore
    from penstock_operator.resources.incarnation import Incarnation

CHECK_SECONDS = 600
CHECK_VARIABLE = "PENSTOCK_CHECK_BEFORE_RELEASE"
"""Environment variable that lets a master check its program before the release. An engine without this feature ignores it."""
_STANDBY_SECONDS = 365 * 86400
"""Value of `minReadySeconds` for pods on standby. It is longer than pods are ever on standby, even if the operator is
down. If the pods became available, the rollout would remove the running pods.
"""


def restore_option(restore: Restore) -> list[str]:
    """Return the option that sets the source of the state. The master refuses to start without it."""
    if restore.kind == "Fresh":
        return ["--fresh"]
    if restore.kind == "Latest" or restore.path is None:
        return ["--restore-latest"]
    return ["--restore", restore.path]


def master_args(incarnation: Incarnation) -> list[str]:
    """Return the arguments of the master. The container reads the parallelism when it starts, so that a rescale
    survives a restart.
    """
    spec = incarnation.spec
    start = ["--when-released"] if incarnation.warm else restore_option(incarnation.restore)
    allowed = [part for uid in incarnation.allow_non_restored_state for part in ("--allow-non-restored-state", uid)]
    return [
        "master", "--entry", program.entry(spec), *start, *allowed,
        "--job-id", incarnation.job_id, "--parallelism", f"$({PARALLELISM_VARIABLE})", "--", *spec.job.args,
    ]  # fmt: skip


def master_deployment(owner: Owner, incarnation: Incarnation, lost_node: timedelta) -> dict[str, Any]:
    """Return the Deployment of the JobManager. Its strategy is Recreate, because masters of two revisions must not run
    the same job. Two masters of one revision elect a leader.
    """
    checks = [{"name": CHECK_VARIABLE, "value": "1"}] if incarnation.checks else []
    return _master(owner, incarnation, master_args(incarnation), [_parallelism(owner), *checks], lost_node)


def session_deployment(owner: Owner, incarnation: Incarnation, lost_node: timedelta) -> dict[str, Any]:
    """Return the Deployment of a JobManager without a job. It runs the programs that the operator sends."""
    return _master(owner, incarnation, ["session"], [], lost_node)


def _master(
    owner: Owner, incarnation: Incarnation, args: list[str], env: list[dict[str, Any]], lost_node: timedelta
) -> dict[str, Any]:
    spec = incarnation.spec
    parts = PodParts(
        role="master",
        args=args,
        resources=master_resources(spec),
        template=spec.master.pod_template,
        config=_config_map_projection(owner, incarnation),
        service_account=spec.service_account.name or owner.master,
        env=env,
        ports=[
            {"name": "rest", "containerPort": REST_PORT},
            {"name": "spark-master", "containerPort": MASTER_PORT},
            {"name": "spark-driver", "containerPort": DRIVER_PORT},
            {"name": "spark-blocks", "containerPort": BLOCKS_PORT},
        ],
        probes=master_probes(tls=bool(rest_tls_secret(spec))),
        tls_secret=rest_tls_secret(spec),
        labels=incarnation_labels(incarnation.job_id),
        spread=spec.master.replicas > 1,
    )
    return _deployment(owner, incarnation, parts, spec.master.replicas, lost_node)


def worker_deployment(owner: Owner, incarnation: Incarnation, workers: int, lost_node: timedelta) -> dict[str, Any]:
    """Return the Deployment of the TaskManagers."""
    spec = incarnation.spec
    address = f"{owner.master_service(incarnation.service_suffix)}.{owner.namespace}.svc:{MASTER_PORT}"
    parts = PodParts(
        role="worker",
        args=["worker", "--master", address, "--slots", str(spec.worker.slots)],
        resources=worker_resources(spec),
        template=spec.worker.pod_template,
        config=_config_map_projection(owner, incarnation),
        service_account=spec.service_account.name or owner.worker,
        env=[{"name": HEALTH_VARIABLE, "value": str(HEALTH_PORT)}],
        ports=[
            {"name": "spark-blocks", "containerPort": BLOCKS_PORT},
            {"name": "health", "containerPort": HEALTH_PORT},
        ],
        probes=worker_probes(),
        grace=15,
        labels=incarnation_labels(incarnation.job_id),
    )
    return _deployment(owner, incarnation, parts, workers, lost_node)


def standby_deployment(deployment: dict[str, Any], running: str) -> dict[str, Any]:
    """Return the Deployment with a strategy that starts the new pods and keeps the old pods, which belong to the
    incarnation `running`.

    The pod template is already the template of the ordinary Deployment. When the operator later applies the ordinary
    Deployment, Kubernetes removes the old pods and creates no new pods.
    """
    spec = {
        **deployment["spec"],
        "minReadySeconds": _STANDBY_SECONDS,
        "progressDeadlineSeconds": _STANDBY_SECONDS + 1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}},
    }
    metadata = {**deployment["metadata"], "annotations": {**deployment["metadata"]["annotations"], STANDBY: running}}
    return {**deployment, "metadata": metadata, "spec": spec}


def check_pod(
    owner: Owner, spec: FlinkJobSpec, revision: str, operation: str, against: str | None, lost_node: timedelta
) -> dict[str, Any]:
    """Return the pod that runs `penstock check` in the new image. Its configuration is an annotation, because no
    incarnation exists yet. A program that the spec contains is in a ConfigMap, because it may be too large for an annotation.
    """
    target = ["--against", against] if against else []
    annotated = {"downwardAPI": {"items": [{"path": CONFIG_FILE, "fieldRef": {"fieldPath": _annotation(CONFIG)}}]}}
    files = program.items(spec)
    target += [part for uid in spec.job.allow_non_restored_state for part in ("--allow-non-restored-state", uid)]
    parts = PodParts(
        role="check",
        args=[
            "check", "--entry", program.entry(spec), "--parallelism", str(spec.job.parallelism), *target,
            "--format", "json", "--", *spec.job.args,
        ],
        resources=master_resources(spec),
        template=spec.master.pod_template,
        config=[annotated, *([{"configMap": {"name": owner.check(operation), "items": files}}] if files else [])],
        service_account=spec.service_account.name or owner.worker,
        grace=5,
        annotations={
            CONFIG: render(configuration(spec)),
            OPERATION: operation,
            REVISION: revision,
        },
        restart_policy="Never",
    )  # fmt: skip
    template = pod_template(owner, spec, parts, lost_node)
    template["spec"]["activeDeadlineSeconds"] = CHECK_SECONDS
    metadata = {**owner.metadata(owner.check(operation), "check"), **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _deployment(
    owner: Owner, incarnation: Incarnation, parts: PodParts, replicas: int, lost_node: timedelta
) -> dict[str, Any]:
    template = pod_template(owner, incarnation.spec, parts, lost_node)
    annotations = {
        REVISION: incarnation.revision,
        INCARNATION: incarnation.job_id,
        APPLIED: _digest(template),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**owner.metadata(f"{owner.name}-{parts.role}", parts.role), "annotations": annotations},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": owner.selector(parts.role)},
            "template": template,
        },
    }


def _config_map_projection(owner: Owner, incarnation: Incarnation) -> list[dict[str, Any]]:
    name = owner.config(incarnation.job_id, incarnation.revision)
    items = [{"key": CONFIG_FILE, "path": CONFIG_FILE}, *program.items(incarnation.spec)]
    return [{"configMap": {"name": name, "items": items}}]


def _parallelism(owner: Owner) -> dict[str, Any]:
    source = {"configMapKeyRef": {"name": owner.parallelism, "key": PARALLELISM_KEY}}
    return {"name": PARALLELISM_VARIABLE, "valueFrom": source}


def _annotation(name: str) -> str:
    return f"metadata.annotations['{name}']"


def _digest(template: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]
