"""The facts observed in one pass. `observe` collects them, and `decide` evaluates them.

A fact that could not be read is never the same as an absent fact. For example, `Storage.error` does not mean "no
checkpoint". `Engine.reachable=False` does not mean "no job".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.engine.account import Checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from penstock_operator.api.status.snapshots import Restore
    from penstock_operator.engine.account import Request, Rescaled
    from penstock_operator.engine.autoscaler import Autoscaler
    from penstock_operator.storage.snapshots import Beginning, Left, StoredSnapshot, Verdict

Role = Literal["master", "worker"]


def is_at(worker: str, name: str, ip: str | None) -> bool:
    """Return whether the id or address of a worker (`id@host:port`, `host:port`) belongs to this pod.

    >>> is_at("10.0.0.12-0", "job-worker-x", "10.0.0.1"), is_at("10.0.0.1-0", "job-worker-x", "10.0.0.1")
    (False, True)
    """
    return any(worker == host or worker.startswith((f"{host}-", f"{host}:")) for host in (name, ip) if host)


@dataclass(frozen=True)
class Trouble:
    """A problem with pods that Kubernetes reports and that may need a user's action."""

    reason: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}"


@dataclass(frozen=True)
class Deployment:
    """One of the job's two Deployments."""

    role: Role
    revision: str
    job_id: str
    replicas: int
    ready: int = 0
    deleting: bool = False
    config: str = ""
    """Name of the ConfigMap with the configuration of the pods."""
    drift: str = ""
    """Path of the first difference from the Deployment that the operator would create for the running incarnation."""
    same_made: bool = False
    """Whether the Deployment belongs to the running incarnation and this version of the operator would create the same
    pods.
    """
    standby: bool = False
    """Whether the new pods are on standby next to the pods of the running incarnation."""
    warm: bool = False
    """Whether the master's pods were started before their job was released (`--when-released`)."""
    checks: bool = False
    """Whether the master checks its program before the release (`Incarnation.checks`)."""
    starts_from: Restore | None = None
    """The restore point in the arguments of the master. None means that the arguments have no restore point."""
    service_suffix: str = ""
    """Suffix of the master's Service that the workers connect to (`Incarnation.service_suffix`)."""
    rest_tls: str = ""
    """Name of the Secret with the certificate of the master's REST API. Empty if the master serves plain HTTP."""
    memory_limit: str | None = None
    """Memory limit of the main container."""
    trouble: Trouble | None = None


CONTAINER_FAILED = "ContainerFailed"
"""Reason of a container that exited without being killed. The cause is often the end of another container."""


@dataclass(frozen=True)
class Terminated:
    """The last unexpected termination of a container, or of the whole pod."""

    pod: str
    role: str
    container: str
    """Name of the container. Empty means the whole pod."""
    trouble: Trouble
    """Cause and remedy."""
    at: datetime | None
    exit_code: int | None = None
    memory_limit: str = ""
    """Memory limit of the container. Empty if the container has no limit."""


@dataclass(frozen=True)
class Pod:
    """One of the job's pods."""

    name: str
    role: Role
    job_id: str
    ready: bool = False
    started: bool = False
    """Whether the main container has run at least once."""
    terminating: bool = False
    over: bool = False
    """Whether the pod has failed (for example by an eviction) or succeeded. The pod still exists, but nothing in it
    runs.
    """
    node_lost: bool = False
    restarts: int = 0
    created: datetime | None = None
    ip: str = ""
    trouble: Trouble | None = None
    last_end: str = ""
    """The last termination of the main container, expected or not."""
    storage_failed: bool = False
    """Whether the main container last ended because checkpoint storage failed. This says nothing about the program."""
    running_since: datetime | None = None
    """The last start of the main container. None means that the container does not run."""
    terminations: tuple[Terminated, ...] = ()
    """Terminations in the pod, even if the container runs again."""


TERMINAL = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""States that a job does not leave. SUSPENDED is not among them: the master is about to end, and the job continues in
another master.
"""


ENDING = frozenset({"CANCELLING", "FAILING"})
"""States that only lead to a terminal state, unless a part of the job hangs."""


@dataclass(frozen=True)
class Engine:
    """The state of the job, as its master reports it."""

    reachable: bool = False
    error: str = ""
    silent_for: timedelta = timedelta(0)
    """Time for which the master has not responded."""
    no_checkpoint_for: timedelta = timedelta(0)
    """Time since the operator last saw a new checkpoint, by the operator's clock. The times of checkpoints use the
    master's clock.
    """
    absent: bool = False
    """Whether no pod exists in which the master could run, or only pods that are being deleted."""
    job_id: str | None = None
    state: str | None = None
    parallelism: int | None = None
    slots_total: int = 0
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    request: Request | None = None
    exception: str = ""
    end_of_input: bool = False
    """Whether the job is FINISHED because it read all of its input."""
    restarts: int = 0
    """Number of failovers. A rescale is not a failover."""
    rescaled: Rescaled | None = None
    """The last completed rescale."""
    busy_workers: frozenset[str] = frozenset()
    """Names or addresses of the workers that run part of the job."""
    autoscaler: Autoscaler | None = None
    """The autoscaler, if it is on and the master has reported it."""
    has_autoscaler: bool = True
    """Whether the engine has an autoscaler. False only if its master has refused the request for this reason."""

    @property
    def running(self) -> bool:
        """Whether the job processes records."""
        return self.reachable and self.state == "RUNNING"

    @property
    def suspended(self) -> bool:
        """Whether this master was fenced. This master does nothing, and another master continues from the newest
        checkpoint.
        """
        return self.reachable and self.state == "SUSPENDED"

    @property
    def ending(self) -> bool:
        """Whether the job is about to end without a request of the operator. It can no longer take a savepoint."""
        return self.reachable and self.state in ENDING

    @property
    def terminal(self) -> bool:
        """Whether the job has ended and will not continue without the operator."""
        return self.reachable and self.state in TERMINAL


@dataclass(frozen=True)
class Storage:
    """Result of reading checkpoint storage. It only has the parts that were requested (`observe.scope`)."""

    was_read: bool = False
    error: str = ""
    newest: StoredSnapshot | None = None
    """Newest complete checkpoint of the running incarnation."""
    sealed: StoredSnapshot | None = None
    """Complete savepoint in the operation's target directory."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    """Complete savepoints in the folders of a FlinkSnapshot's attempts. Only read while the FlinkSnapshot is being
    deleted.
    """
    left: Left | None = None
    """State that other FlinkJobs of this name have left. None means that this state was not read."""
    beginning: Beginning | None = None
    """The records of the start of the running incarnation. None means that the records were not read."""

    def verdict(self, path: str) -> Verdict | None:
        """Return the verdict on `path`, or None if it was not requested or storage did not respond."""
        return self.verdicts.get(path)


@dataclass(frozen=True)
class CheckProblem:
    """A problem that `penstock check` found."""

    code: str
    message: str
    remedy: str = ""
    operator: str | None = None

    def __str__(self) -> str:
        where = f"operator {self.operator!r}: " if self.operator else ""
        return f"{where}{self.message}{'. ' + self.remedy if self.remedy else ''}"


@dataclass(frozen=True)
class CheckPod:
    """The pod that checks a new revision: a separate pod, or the master of a first deployment."""

    name: str
    operation: str
    state: Literal["Waiting", "Running", "Passed", "Refused", "Crashed", "Overdue", "Interrupted", "NoResult"]
    """Overdue: the program did not end in time. Interrupted: Kubernetes ended the pod, which says nothing about the
    program. NoResult: the master does not check its program, or has ended before the result.
    """
    problems: tuple[CheckProblem, ...] = ()
    output: str = ""
    trouble: Trouble | None = None
    started: datetime | None = None
    """Time when the program started to run."""
    state_changes: tuple[str, ...] = ()
    """State that the new revision migrates or starts empty."""
    not_looked_at: tuple[str, ...] = ()
    """Places that may declare state which the check did not compare with the snapshot."""
    warnings: tuple[str, ...] = ()
    """Warnings of the check. They do not cause a rejection of the revision."""


@dataclass(frozen=True)
class LeavingCheck:
    """A check pod that is being deleted. Its name is not free until its node reports that the pod has ended."""

    name: str
    operation: str
    since: datetime
    """Time by which the pod should have ended."""


class Revisions(Mapping[str, Mapping[str, Any]]):
    """The stored specs by the name of their ControllerRevision, oldest first. A spec is parsed once, at its first
    use.
    """

    def __init__(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        self._stored = stored
        self._specs: dict[str, FlinkJobSpec | None] = {}

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def spec(self, name: str) -> FlinkJobSpec | None:
        """Return the spec of a revision. Return None if the revision does not exist or cannot be parsed."""
        if name in self._stored and name not in self._specs:
            self._specs[name] = _spec(self._stored[name])
        return self._specs.get(name)


def _spec(stored: object) -> FlinkJobSpec | None:
    try:
        return FlinkJobSpec.model_validate(stored)
    except ValidationError:
        return None


@dataclass(frozen=True)
class SnapshotObject:
    """A FlinkSnapshot of this job."""

    name: str
    trigger: str
    kind: Literal["savepoint", "checkpoint"]
    state: str
    path: str | None = None
    checkpoint_id: int | None = None
    created: datetime | None = None
    completed_at: datetime | None = None
    made_by: str | None = None
    """Job id of the incarnation that made the snapshot, if known."""
    recorded: bool = False
    """Whether the status records that the operator created the files for this FlinkSnapshot."""
    deleting: bool = False


@dataclass(frozen=True)
class ActionResult:
    """Result of the last action. It is only kept in memory, because after a crash the action is due again."""

    action: str
    ok: bool
    code: str = ""
    message: str = ""
    request_id: str | None = None


Repaired = Literal["master", "worker", "children"]
"""Groups of objects that are applied again together: a Deployment, or all objects around the pods."""


@dataclass(frozen=True)
class Repair:
    """A group of objects that was applied again but still has the same difference."""

    flaw: str
    """The difference."""
    attempts: int
    """Number of consecutive attempts."""
    at: datetime
    """Time of the last attempt."""


UNREAD = "cannot be read"
"""Text that replaces the difference for objects that the operator has no permission to read."""


@dataclass(frozen=True)
class Observation:
    """The complete input of one decision."""

    master: Deployment | None = None
    worker: Deployment | None = None
    pods: tuple[Pod, ...] = ()
    standby: tuple[Pod, ...] = ()
    """Pods on standby for the operation in progress. `pods` does not include them."""
    foreign: tuple[str, ...] = ()
    """Objects with names that this job needs. They belong to an earlier FlinkJob and are still being removed."""
    ownerless: str = ""
    """Command that deletes the foreign objects without an owner. Kubernetes never deletes them."""
    missing: tuple[str, ...] = ()
    """Services, ConfigMap and other objects that are missing or changed, each with the path of the difference."""
    edited: bool = False
    """Whether these differences follow from an edit of the spec, and not from another client."""
    repairs: Mapping[Repaired, Repair] = field(default_factory=dict)
    """Differences that an apply did not fix, because another client changes them back."""
    engine: Engine = field(default_factory=Engine)
    storage: Storage = field(default_factory=Storage)
    check: CheckPod | None = None
    leaving: tuple[LeavingCheck, ...] = ()
    """Check pods that are being deleted."""
    revisions: Revisions = field(default_factory=lambda: Revisions({}))
    snapshots: tuple[SnapshotObject, ...] = ()
    late: Mapping[str, StoredSnapshot | None] = field(default_factory=dict)
    """Savepoints by folder, for folders in which a savepoint may have completed late. Folders that storage could not
    read are missing.
    """
    last: ActionResult | None = None
    failure: str = ""
    """Reason why the observation is empty: an unexpected error, or a missing permission."""

    @property
    def flaws(self) -> dict[Repaired, str]:
        """Differences between the live and the required objects, with their paths. A missing master is not included,
        because an operation recovers it.
        """
        found: dict[Repaired, str] = {"children": ", ".join(self.missing)}
        if self.worker is None:
            found["worker"] = "missing"
        elif not self.worker.deleting:
            found["worker"] = self.worker.drift
        if self.master is not None and not self.master.deleting:
            found["master"] = self.master.drift
        return {part: flaw for part, flaw in found.items() if flaw}

    def configs(self, job_id: str) -> frozenset[str]:
        """Return the names of the ConfigMaps that configure the Deployments of an incarnation."""
        found = (d for d in (self.master, self.worker) if d is not None and not d.deleting and d.job_id == job_id)
        return frozenset(d.config for d in found if d.config)

    @property
    def left(self) -> tuple[Pod, ...]:
        """The pods that may still be active."""
        return tuple(p for p in self.pods if not p.over)

    def pods_of(self, role: Role) -> tuple[Pod, ...]:
        """Return the pods of one role that may still be active."""
        return tuple(p for p in self.left if p.role == role)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """Problems that Kubernetes reports, one for each reason. A lost node comes first, because it causes other
        problems. The problems of the master follow.
        """
        sources = (self.master, *self.pods_of("master"), self.worker, *self.pods_of("worker"))
        found: dict[str, Trouble] = {}
        for source in sources:
            if source is not None and source.trouble is not None:
                found.setdefault(source.trouble.reason, source.trouble)
        return tuple(sorted(found.values(), key=lambda trouble: trouble.reason != "NodeLost"))

    @property
    def refusal(self) -> Trouble | None:
        """The reason why Kubernetes does not create pods, such as a quota or an admission policy."""
        return next((d.trouble for d in (self.master, self.worker) if d is not None and d.trouble is not None), None)

    @property
    def replicas(self) -> int:
        """Number of pods that the Deployments request."""
        return sum(d.replicas for d in (self.master, self.worker) if d is not None and not d.deleting)
