"""Conversion of Kubernetes' JSON to the facts of `observation`. Pure functions. A missing field is never an error."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock_operator.api.flinksnapshot import parse_snapshot_status
from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.api.status.snapshots import Restore, named_restore
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
from penstock_operator.reconcile.observe.terminations import EXIT_STORAGE, describe_end, terminations
from penstock_operator.reconcile.observe.troubles import (
    deployment_trouble,
    ended_by_itself,
    first_failure,
    interruption,
    last_output,
    main_container,
    node_trouble,
    pod_trouble,
)
from penstock_operator.resources.deployments import CHECK_VARIABLE
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
    TLS_FOLDER,
    TLS_KEYS,
    TRIGGER,
    Owner,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Manifest = dict[str, Any]


CHECK_BEGINS = "penstock checks the program before its release"
"""First line of a check by a master (`penstock.jobmanager.process.master.first_check`)."""
LOG_PATIENCE = timedelta(seconds=30)
"""Time for which the log of a running master may be missing."""
CHECK_REPORTS = "penstock has checked the program: "
"""Start of the line with the report of that check."""


def labels_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of an object."""
    return dict(manifest.get("metadata", {}).get("labels") or {})


def annotations_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object."""
    return dict(manifest.get("metadata", {}).get("annotations") or {})


def is_made_for(owner: Owner, manifest: Mapping[str, Any]) -> bool:
    """Return whether the operator created an object for this FlinkJob. For a FlinkSnapshot, which outlives its
    FlinkJob, compare the name.
    """
    labels = labels_of(manifest)
    if manifest.get("kind") == FLINKSNAPSHOT.name:
        return labels.get(JOB) == owner.name and labels.get("app.kubernetes.io/managed-by") == MANAGER
    return labels.get(JOB_UID) == owner.uid


def parse_time(text: str | None) -> datetime | None:
    """Parse a time in RFC 3339, the format of Kubernetes."""
    return datetime.fromisoformat(text) if text else None


def deployment(manifest: Manifest) -> Deployment:
    """Return one of the job's Deployments, without the drift, which `look` computes."""
    marks, spec, status = annotations_of(manifest), manifest.get("spec", {}), manifest.get("status", {})
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    arguments = next((list(c.get("args") or ()) for c in containers if c.get("name") == MAIN_CONTAINER), [])
    args = arguments[: arguments.index("--")] if "--" in arguments else arguments  # arguments of the program follow
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
        checks=_has_variable(containers, CHECK_VARIABLE),
        starts_from=restore_of(args),
        service_suffix=_service_suffix_of(labels_of(manifest).get(JOB, ""), args),
        rest_tls=_rest_tls_of(spec.get("template", {}).get("spec", {})),
        memory_limit=_memory_limit_of(containers),
    )


def _memory_limit_of(containers: Iterable[Mapping[str, Any]]) -> str | None:
    main = next((c for c in containers if c.get("name") == MAIN_CONTAINER), {})
    limit = ((main.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else str(limit)


def _has_variable(containers: Iterable[Mapping[str, Any]], name: str) -> bool:
    main = next((c for c in containers if c.get("name") == MAIN_CONTAINER), {})
    return any(variable.get("name") == name for variable in main.get("env") or ())


def restore_of(args: Sequence[str]) -> Restore | None:
    """Return the restore point in the arguments of a master.

    >>> restore_of(["master", "--restore", "s3://b/a/chk-7"]).kind
    'Checkpoint'
    """
    reason = "the arguments of its master"
    if "--fresh" in args:
        return Restore(kind="Fresh", reason=reason)
    if "--restore" not in args[:-1]:
        return None
    return named_restore(args[args.index("--restore") + 1], reason)


def _service_suffix_of(job: str, args: list[str]) -> str:
    """Return the suffix of the Service through which workers with these arguments find their master.

    >>> _service_suffix_of("weather", ["worker", "--master", "weather-master-b.default.svc:7077"])
    '-b'
    """
    address = args[args.index("--master") + 1] if "--master" in args[:-1] else ""
    host, service = address.partition(".")[0], f"{job}-master"
    return host.removeprefix(service) if host.startswith(service) else ""


def _sources_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    volume: Mapping[str, Any] = next((v for v in pod.get("volumes") or () if v.get("name") == "config"), {})
    return list((volume.get("projected") or {}).get("sources") or ())


def _rest_tls_of(pod: Mapping[str, Any]) -> str:
    path = f"{TLS_FOLDER}/{TLS_KEYS[0]}"
    secrets = [source["secret"] for source in _sources_of(pod) if source.get("secret")]
    found = (s for s in secrets if any(item.get("path") == path for item in s.get("items") or ()))
    return next((str(s.get("name", "")) for s in found), "")


def _config_of(pod: Mapping[str, Any]) -> str:
    sources = _sources_of(pod)
    return next((str(s["configMap"].get("name", "")) for s in sources if s.get("configMap")), "")


def pod(manifest: Manifest) -> Pod:
    """Return a pod of the master or the workers."""
    meta, status = manifest.get("metadata", {}), manifest.get("status", {})
    container = main_container(manifest)
    restarts, state = int(container.get("restartCount", 0)), container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
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
        last_end=describe_end(ended) if ended else "",
        storage_failed=ended.get("exitCode") == EXIT_STORAGE,
        running_since=parse_time(state.get("running", {}).get("startedAt")),
    )


def _is_over(manifest: Manifest) -> bool:
    return manifest.get("status", {}).get("phase") in ("Succeeded", "Failed")


def check_has_ended(manifest: Manifest) -> bool:
    """Return whether the main container of the check pod has ended, or will never run."""
    return "terminated" in main_container(manifest).get("state", {}) or _is_over(manifest)


def check_pod(manifest: Manifest, log: str | None) -> CheckPod:
    """Return the pod that checks a revision. `log` is the log of its main container, or None if the log is not
    available.

    Only the main container decides. A sidecar from the user's podTemplate may keep the pod from ending, or make it
    fail. The report is in the log. If the log is not available, the termination message is used. After an error, the
    kubelet copies the end of the log to this message.

    Two results are not a verdict:

    - Exit code 0 with a log without a report. The user's module ended the process before the check was done.
    - A container that Kubernetes stopped early.
    """
    name = manifest.get("metadata", {}).get("name", "")
    operation = annotations_of(manifest).get(OPERATION, "")
    container = main_container(manifest)
    state, words = container.get("state", {}), last_output(container, manifest)
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
    return _reported(name, operation, report, passed=succeeded, output=(log or words).strip()[-500:])


def check_by_master(manifest: Manifest, log: str | None, operation: str, now: datetime) -> CheckPod:
    """Return the master's pod as the pod that checks its own program. `log` is the log of its running container, or None if the
    log is not available.

    A master with an older engine does not check its program. It is ready, but its log lacks the first line of a check.
    """
    name, container = manifest.get("metadata", {}).get("name", ""), main_container(manifest)
    state, text = container.get("state", {}), log or ""
    began = parse_time(state.get("running", {}).get("startedAt"))
    if (report := _report_of_master(text)) is not None:
        return _reported(name, operation, report, passed=True, output="")
    if int(container.get("restartCount", 0)) or "terminated" in state:
        return CheckPod(name, operation, "NoResult", output=last_output(container, manifest), started=began)
    if container.get("started") and log is not None and CHECK_BEGINS not in text:
        return CheckPod(name, operation, "NoResult", output="its engine is older", started=began)
    if container.get("started") and log is None and began is not None and now - began > LOG_PATIENCE:
        return CheckPod(name, operation, "NoResult", output="its log cannot be read", started=began)
    phase: Literal["Running", "Waiting"] = "Running" if "running" in state else "Waiting"
    return CheckPod(name, operation, phase, trouble=pod_trouble(manifest), started=began)


def _report_of_master(log: str) -> dict[str, Any] | None:
    start = log.find(CHECK_REPORTS)
    if start < 0:
        return None
    try:
        found = json.loads(log[start + len(CHECK_REPORTS) :].partition("\n")[0])
    except ValueError:  # the rest of the line is not written yet
        return None
    return found if isinstance(found, dict) and "ok" in found else None


def _reported(name: str, operation: str, report: Mapping[str, Any], *, passed: bool, output: str) -> CheckPod:
    problems = tuple(_problem(p) for p in report.get("problems", ()) if isinstance(p, dict))
    return CheckPod(
        name,
        operation,
        "Passed" if report.get("ok") and passed else "Refused",
        problems,
        output=output,
        state_changes=tuple(_state_change(c) for c in report.get("state_changes", ()) if isinstance(c, dict)),
        not_looked_at=tuple(
            f"operator {unseen.get('operator', '?')}, {unseen.get('statement', '?')}"
            for unseen in report.get("not_looked_at", ())
            if isinstance(unseen, dict)
        ),
        warnings=tuple(str(_problem(w)) for w in report.get("warnings", ()) if isinstance(w, dict)),
    )


def _state_change(change: Mapping[str, Any]) -> str:
    where = f"operator {change['operator']}: " if change.get("operator") else ""
    return f"{where}{change.get('message', '?')}"


def leaving_checks(manifests: Iterable[Manifest]) -> tuple[LeavingCheck, ...]:
    """Return the check pods that are being deleted."""
    found = []
    for manifest in manifests:
        meta = manifest["metadata"]
        gone_at = parse_time(meta.get("deletionTimestamp"))
        if gone_at is not None and labels_of(manifest).get(ROLE) == "check":
            found.append(LeavingCheck(meta["name"], annotations_of(manifest).get(OPERATION, ""), gone_at))
    return tuple(found)


def ownerless(manifests: Iterable[Manifest], uid: str) -> str:
    """Return the command with which a user deletes objects of another FlinkJob of this name that have no owner."""
    remaining = [
        m
        for m in manifests
        if labels_of(m).get(JOB_UID, uid) != uid and not m["metadata"].get("ownerReferences") and m.get("kind") != "Pod"
    ]
    return removal(remaining) if remaining else ""


def removal(objects: list[Manifest]) -> str:
    """Return the command that deletes objects of one kind.

    >>> removal([{"kind": "Secret", "metadata": {"namespace": "a", "name": "x"}}])
    'kubectl delete secret -n a x'
    """
    names = " ".join(sorted(m["metadata"]["name"] for m in objects))
    kind, namespace = objects[0].get("kind", "Deployment"), objects[0]["metadata"].get("namespace", "")
    return f"kubectl delete {kind.lower()} -n {namespace} {names}"


_FIELDS = {
    "allow_non_restored_state=": "spec.job.allowNonRestoredState: ",
    "execution.checkpointing.dir = ": "spec.storage.checkpoints: ",
    "execution.checkpointing.savepoint-dir = ": "spec.storage.savepoints: ",
    **LIMIT_OF,
}
"""Names that the engine uses, each with the field of a FlinkJob."""


def _problem(raw: Mapping[str, Any]) -> CheckProblem:
    operator = raw.get("operator")
    return CheckProblem(
        code=str(raw.get("code", "")),
        message=in_the_spec(str(raw.get("message", ""))),
        remedy=in_the_spec(str(raw.get("remedy") or "")),
        operator=str(operator) if operator else None,
    )


def in_the_spec(text: str) -> str:
    """Return a message of the engine, with its keys replaced by the fields of a FlinkJob."""
    for theirs, ours in _FIELDS.items():
        text = text.replace(theirs, ours)
    return text


def read_report(log: str) -> dict[str, Any] | None:
    """Return the JSON report in a log: the last object with the key `ok`, whatever the user's module printed before
    it.
    """
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
    """Return a FlinkSnapshot."""
    meta, spec = manifest.get("metadata", {}), manifest.get("spec", {})
    status = parse_snapshot_status(manifest.get("status"))
    return SnapshotObject(
        name=meta.get("name", ""),
        trigger=labels_of(manifest).get(TRIGGER, "manual"),
        kind="checkpoint" if "checkpoint" in spec else "savepoint",
        state=status.state,
        path=status.path or (spec.get("savepoint") or {}).get("path"),
        checkpoint_id=status.checkpoint_id,
        created=parse_time(meta.get("creationTimestamp")),
        completed_at=status.completed_at,
        made_by=status.job_id,
        recorded=status.made_for is not None and status.made_for == meta.get("uid"),
        deleting="deletionTimestamp" in meta,
    )


def revisions(manifests: Iterable[Manifest]) -> Revisions:
    """Return the specs that the ControllerRevisions store."""
    ordered = sorted(manifests, key=lambda m: (int(m.get("revision") or 0), m["metadata"]["name"]))
    return Revisions({m["metadata"]["name"]: (m.get("data") or {}).get("spec", {}) for m in ordered})


def foreign(manifests: Iterable[Manifest], uid: str) -> tuple[str, ...]:
    """Return the objects with our name that were created for another FlinkJob. Skip check pods, because they change
    nothing.
    """
    return tuple(
        f"{m.get('kind', 'object')} {m['metadata']['name']}"
        for m in manifests
        if labels_of(m).get(JOB_UID, uid) != uid and labels_of(m).get(ROLE) != "check"
    )


def drift(wanted: Manifest, live: Manifest) -> str:
    """Return the path of the first change that another client made to a Deployment, or an empty string.

    The pod template is only compared if the operator that applied the Deployment wanted the same template as this
    version. The digest in an annotation shows this. Otherwise every new version would restart all jobs. More than one
    replica of the master is a change, because a second master would take over the job. The number of workers is not
    compared, because a rescale changes it.
    """
    if (
        labels_of(wanted).get(ROLE) == "master"
        and int(live.get("spec", {}).get("replicas", 1)) > wanted["spec"]["replicas"]
    ):
        return "spec.replicas"
    if annotations_of(wanted).get(APPLIED) != annotations_of(live).get(APPLIED):
        return ""
    return difference(wanted["spec"]["template"], live.get("spec", {}).get("template"), "spec.template") or ""
