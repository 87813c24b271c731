"""From Kubernetes' JSON to the facts of `observation`. Pure, and total: a missing field is never an error."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock_operator.api.flinksnapshot import parse_snapshot_status
from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.kube.cluster import FLINKSNAPSHOT
from penstock_operator.reconcile.observation import (
    CheckPod,
    CheckProblem,
    Deployment,
    LeavingCheck,
    Pod,
    Revisions,
    Role,
    SnapshotObject,
)
from penstock_operator.reconcile.observe.difference import difference
from penstock_operator.reconcile.observe.terminations import how, terminations
from penstock_operator.reconcile.observe.troubles import (
    deployment_trouble,
    ended_by_itself,
    first_failure,
    interruption,
    last_words,
    main_container,
    node_trouble,
    pod_trouble,
)
from penstock_operator.resources.memory import LIMIT_OF
from penstock_operator.resources.names import (
    APPLIED,
    INCARNATION,
    JOB,
    JOB_UID,
    MANAGER,
    OPERATION,
    REVISION,
    ROLE,
    STANDBY,
    TRIGGER,
    Owner,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Manifest = dict[str, Any]


def labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Labels of an object."""
    return dict(manifest.get("metadata", {}).get("labels") or {})


def annotations_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Annotations of an object."""
    return dict(manifest.get("metadata", {}).get("annotations") or {})


def is_made_for(owner: Owner, manifest: Mapping[str, Any]) -> bool:
    """Whether the operator made an object, for this very FlinkJob. Snapshots outlive theirs and have its name only."""
    labels = labels_of(manifest)
    if manifest.get("kind") == FLINKSNAPSHOT.name:
        return labels.get(JOB) == owner.name and labels.get("app.kubernetes.io/managed-by") == MANAGER
    return labels.get(JOB_UID) == owner.uid


def parse_time(text: str | None) -> datetime | None:
    """RFC 3339 as Kubernetes writes it."""
    return datetime.fromisoformat(text) if text else None


def deployment(manifest: Manifest) -> Deployment:
    """One of the job's Deployments. Drift is judged elsewhere."""
    marks, spec, status = annotations_of(manifest), manifest.get("spec", {}), manifest.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    args = next((list(c.get("args") or ()) for c in containers if c.get("name") == MAIN_CONTAINER), [])
    return Deployment(
        role=cast("Role", labels_of(manifest).get(ROLE, "worker")),
        revision=marks.get(REVISION, ""),
        job_id=marks.get(INCARNATION, ""),
        replicas=int(spec.get("replicas", 1)),
        ready=int(status.get("readyReplicas", 0)),
        deleting="deletionTimestamp" in manifest.get("metadata", {}),
        config=_config_of(spec.get("template", {}).get("spec", {})),
        trouble=deployment_trouble(manifest),
        standby=STANDBY in marks,
        warm="--when-released" in args,
        door=_door_of(labels_of(manifest).get(JOB, ""), args),
    )


def _door_of(job: str, args: list[str]) -> str:
    """Behind the name of the Service that workers with these arguments find their master by.

    >>> _door_of("weather", ["worker", "--master", "weather-master-b.default.svc:7077"])
    '-b'
    """
    address = args[args.index("--master") + 1] if "--master" in args[:-1] else ""
    host, own = address.partition(".")[0], f"{job}-master"
    return host.removeprefix(own) if host.startswith(own) else ""


def _config_of(pod: Mapping[str, Any]) -> str:
    volume: Mapping[str, Any] = next((v for v in pod.get("volumes") or () if v.get("name") == "config"), {})
    sources = (volume.get("projected") or {}).get("sources") or ()
    return next((str(s["configMap"].get("name", "")) for s in sources if s.get("configMap")), "")


def pod(manifest: Manifest) -> Pod:
    """A master's or worker's pod."""
    meta, status = manifest.get("metadata", {}), manifest.get("status", {})
    container = main_container(manifest)
    restarts, state = int(container.get("restartCount", 0)), container.get("state", {})
    conditions = {c.get("type"): c for c in status.get("conditions", ())}
    ready, lost = conditions.get("Ready", {}), node_trouble(manifest)
    return Pod(
        name=meta.get("name", ""),
        role=cast("Role", labels_of(manifest).get(ROLE, "worker")),
        job_id=labels_of(manifest).get(INCARNATION, ""),
        ready=ready.get("status") == "True",
        started=restarts > 0 or "running" in state or "terminated" in state,
        over=_is_over(manifest),
        terminating="deletionTimestamp" in meta,
        node_lost=lost is not None,
        restarts=restarts,
        created=parse_time(meta.get("creationTimestamp")),
        ip=status.get("podIP", ""),
        trouble=lost or pod_trouble(manifest),
        terminations=terminations(manifest),
        last_end=how(ended) if (ended := container.get("lastState", {}).get("terminated")) else "",
    )


def _is_over(manifest: Manifest) -> bool:
    return manifest.get("status", {}).get("phase") in ("Succeeded", "Failed")


def check_has_ended(manifest: Manifest) -> bool:
    """The check's own container has ended, or will not run any more."""
    return "terminated" in main_container(manifest).get("state", {}) or _is_over(manifest)


def check_pod(manifest: Manifest, log: str | None) -> CheckPod:
    """The pod that proves a revision; `log` is that of the check's own container, None if it cannot be had.

    The check's own container decides, by how it ended: a container of the user's podTemplate that runs beside it may
    keep the pod from ending, or make it fail. The report is in the log, or, if that cannot be had, in the termination
    message, where the kubelet copies the end of a log after an error. Exit code 0 with a log that holds no report is no
    verdict: the user's module ended the process before the check was done. Nor is how a container ended that
    Kubernetes did not let come to its end.
    """
    name = manifest.get("metadata", {}).get("name", "")
    operation = annotations_of(manifest).get(OPERATION, "")
    container = main_container(manifest)
    state, words = container.get("state", {}), last_words(container, manifest)
    succeeded = state.get("terminated", {}).get("exitCode") == 0
    report = read_report(log if log is not None else words)
    if report is None and succeeded and log is None:
        report = {"ok": True}
    done = report is not None and ended_by_itself(container)
    cut_short = None if done else interruption(manifest)
    if cut_short is not None:
        return CheckPod(name, operation, "Interrupted", trouble=cut_short)
    if not check_has_ended(manifest):
        began = parse_time(state.get("running", {}).get("startedAt"))
        now: Literal["Running", "Waiting"] = "Running" if "running" in state else "Waiting"
        return CheckPod(name, operation, now, trouble=pod_trouble(manifest), started=began)
    tail = (log or "").strip()[-500:]
    overdue = not done and manifest["status"].get("reason") == "DeadlineExceeded"
    if overdue and (report is None or report.get("ok")):
        return CheckPod(name, operation, "Overdue", output=tail or words)
    if report is None:
        return CheckPod(
            name, operation, "Crashed", output=f"{words if state else first_failure(manifest)} {tail}".strip()
        )
    problems = tuple(_problem(p) for p in report.get("problems", ()) if isinstance(p, dict))
    passed = bool(report.get("ok")) and succeeded
    return CheckPod(
        name,
        operation,
        "Passed" if passed else "Refused",
        problems,
        output=(log or words).strip()[-500:],
        not_looked_at=tuple(
            f"operator {unseen.get('operator', '?')}, {unseen.get('statement', '?')}"
            for unseen in report.get("not_looked_at", ())
            if isinstance(unseen, dict)
        ),
        warnings=tuple(str(_problem(w)) for w in report.get("warnings", ()) if isinstance(w, dict)),
    )


def leaving_checks(manifests: Iterable[Manifest]) -> tuple[LeavingCheck, ...]:
    """The check pods among these that are being deleted."""
    found = []
    for manifest in manifests:
        meta = manifest["metadata"]
        gone_at = parse_time(meta.get("deletionTimestamp"))
        if gone_at is not None and labels_of(manifest).get(ROLE) == "check":
            found.append(LeavingCheck(meta["name"], annotations_of(manifest).get(OPERATION, ""), gone_at))
    return tuple(found)


_FIELDS = {
    "allow_non_restored_state=": "spec.job.allowNonRestoredState: ",
    "execution.checkpointing.dir = ": "spec.storage.checkpoints: ",
    "execution.checkpointing.savepoint-dir = ": "spec.storage.savepoints: ",
    **LIMIT_OF,
}
"""What the engine calls it → what it is in a FlinkJob."""


def _problem(raw: Mapping[str, Any]) -> CheckProblem:
    operator = raw.get("operator")
    return CheckProblem(
        code=str(raw.get("code", "")),
        message=in_the_spec(str(raw.get("message", ""))),
        remedy=in_the_spec(str(raw.get("remedy") or "")),
        operator=str(operator) if operator else None,
    )


def in_the_spec(text: str) -> str:
    """What the engine says, with the fields of a FlinkJob in place of its own keys."""
    for theirs, ours in _FIELDS.items():
        text = text.replace(theirs, ours)
    return text


def read_report(log: str) -> dict[str, Any] | None:
    """The JSON report in a log: the last object with an `ok`, whatever the user's module printed before it."""
    start = log.rfind('{"ok"')
    starts = [start] if start >= 0 else []
    starts += [i for i in range(len(log) - 1, -1, -1) if log[i] == "{" and (i == 0 or log[i - 1] == "\n")]
    decoder = json.JSONDecoder()
    for position in starts[:200]:
        try:
            found, _ = decoder.raw_decode(log, position)
        except ValueError:
            continue
        if isinstance(found, dict) and "ok" in found:
            return found
    return None


def snapshot(manifest: Manifest) -> SnapshotObject:
    """A FlinkSnapshot."""
    meta, spec = manifest.get("metadata", {}), manifest.get("spec", {})
    status = parse_snapshot_status(manifest.get("status"))
    return SnapshotObject(
        name=meta.get("name", ""),
        trigger=labels_of(manifest).get(TRIGGER, "manual"),
        kind="checkpoint" if "checkpoint" in spec else "savepoint",
        state=status.state,
        path=status.path or (spec.get("savepoint") or {}).get("path"),
        completed_at=status.completed_at,
        made_by=status.job_id,
        deleting="deletionTimestamp" in meta,
    )


def revisions(manifests: Iterable[Manifest]) -> Revisions:
    """What they store."""
    ordered = sorted(manifests, key=lambda m: (int(m.get("revision") or 0), m["metadata"]["name"]))
    return Revisions({m["metadata"]["name"]: (m.get("data") or {}).get("spec", {}) for m in ordered})


def foreign(manifests: Iterable[Manifest], uid: str) -> tuple[str, ...]:
    """Objects of our name that were made for another FlinkJob; its check pods do not count, they change nothing."""
    return tuple(
        f"{m.get('kind', 'object')} {m['metadata']['name']}"
        for m in manifests
        if labels_of(m).get(JOB_UID, uid) != uid and labels_of(m).get(ROLE) != "check"
    )


def drift(wanted: Manifest, live: Manifest) -> str:
    """Where somebody changed a Deployment behind our back, as a path; empty if nobody did.

    The template is only judged if this version of the operator would still make the same one (its digest is an annotation):
    otherwise every new version would restart all jobs. There is one master: a second one would take the job from the first.
    The number of workers is a rescale's.
    """
    if (
        labels_of(wanted).get(ROLE) == "master"
        and int(live.get("spec", {}).get("replicas", 1)) > wanted["spec"]["replicas"]
    ):
        return "spec.replicas"
    if annotations_of(wanted).get(APPLIED) != annotations_of(live).get(APPLIED):
        return ""
    return difference(wanted["spec"]["template"], live.get("spec", {}).get("template"), "spec.template") or ""
