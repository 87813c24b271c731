"""What was seen in one pass: plain facts, gathered by `observe`, judged by `decide`.

A fact that could not be had is never the same as a fact that is absent: `Storage.error` is not "no checkpoint", and
`Engine.reachable=False` is not "no job".
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

    from penstock_operator.engine.account import Request, Rescaled
    from penstock_operator.storage.snapshots import Left, StoredSnapshot, Verdict

Role = Literal["master", "worker"]


@dataclass(frozen=True)
class Trouble:
    """Something Kubernetes says about pods that a person may have to act on."""

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
    """Name of the ConfigMap with its pods' configuration."""
    drift: str = ""
    """Where it is not what the builders would make for the running incarnation."""
    same_made: bool = False
    """It is of the running incarnation, and this version of the operator would make the same pods."""
    standby: bool = False
    """Its pods stand by beside those of the incarnation that runs."""
    warm: bool = False
    """Of the master: its pods were started ahead of time."""
    door: str = ""
    """Of the workers: which of the master's Services they go to (`Incarnation.door`)."""
    trouble: Trouble | None = None


CONTAINER_FAILED = "ContainerFailed"
"""Reason of a container that ended by itself: often because of what ended another one."""


@dataclass(frozen=True)
class Terminated:
    """How a container of a pod has ended last, or the pod itself, without anybody having asked for it."""

    pod: str
    role: str
    container: str
    """Empty: the whole pod."""
    trouble: Trouble
    """Cause and remedy."""
    at: datetime | None
    exit_code: int | None = None
    memory_limit: str = ""
    """Of the container; empty if it has none."""


@dataclass(frozen=True)
class Pod:
    """One of the job's pods."""

    name: str
    role: Role
    job_id: str
    ready: bool = False
    started: bool = False
    """Its main container has run at least once."""
    terminating: bool = False
    over: bool = False
    """It has failed (an eviction, say) or succeeded, and stays as a record of that: nobody deletes it, nothing of it runs."""
    node_lost: bool = False
    restarts: int = 0
    created: datetime | None = None
    ip: str = ""
    trouble: Trouble | None = None
    last_end: str = ""
    """How its main container ended last, wanted or not."""
    terminations: tuple[Terminated, ...] = ()
    """What has ended in it, also if it runs again."""


TERMINAL = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""States that a job does not leave. SUSPENDED is not among them: that master has ended, the job goes on in another."""


ENDING = frozenset({"CANCELLING", "FAILING"})
"""States from which only a terminal one follows, unless something in the job does not let go."""


@dataclass(frozen=True)
class Engine:
    """What the running master says about itself."""

    reachable: bool = False
    error: str = ""
    silent_for: timedelta = timedelta(0)
    """For how long it has not answered."""
    absent: bool = False
    """There is no pod, or none that stays, in which it could run."""
    job_id: str | None = None
    state: str | None = None
    parallelism: int | None = None
    slots_total: int = 0
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    request: Request | None = None
    exception: str = ""
    end_of_input: bool = False
    """The job is known to have FINISHED because all of its input was read."""
    restarts: int = 0
    """Failovers; a rescale is none."""
    rescaled: Rescaled | None = None
    """The last rescale that it has done."""
    busy_workers: frozenset[str] = frozenset()
    """Names or addresses of the workers that have no free slot."""

    @property
    def running(self) -> bool:
        """The job processes records."""
        return self.reachable and self.state == "RUNNING"

    @property
    def suspended(self) -> bool:
        """This master has been fenced off: it does nothing any more, and another one goes on from the newest checkpoint."""
        return self.reachable and self.state == "SUSPENDED"

    @property
    def ending(self) -> bool:
        """The job comes to its end by itself; no savepoint of it is to be had any more."""
        return self.reachable and self.state in ENDING

    @property
    def terminal(self) -> bool:
        """The job has ended and will not go on by itself."""
        return self.reachable and self.state in TERMINAL


@dataclass(frozen=True)
class Storage:
    """What checkpoint storage holds. Only what was asked for (`observe.scope`) is filled in."""

    asked: bool = False
    error: str = ""
    newest: StoredSnapshot | None = None
    """Newest complete checkpoint of the running incarnation."""
    sealed: StoredSnapshot | None = None
    """Complete savepoint in the operation's target directory."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    """Complete savepoints in the folders of a FlinkSnapshot's attempts; asked for while that is being deleted."""
    left: Left | None = None
    """What other FlinkJobs of this name have left; None: not asked."""

    def verdict(self, path: str) -> Verdict | None:
        """The verdict on `path`, if it was asked for and storage answered."""
        return self.verdicts.get(path)


@dataclass(frozen=True)
class CheckProblem:
    """One thing `penstock check` found."""

    code: str
    message: str
    remedy: str = ""
    operator: str | None = None

    def __str__(self) -> str:
        where = f"operator {self.operator!r}: " if self.operator else ""
        return f"{where}{self.message}{'. ' + self.remedy if self.remedy else ''}"


@dataclass(frozen=True)
class CheckPod:
    """The pod that proves a new revision."""

    name: str
    operation: str
    state: Literal["Waiting", "Running", "Passed", "Refused", "Crashed", "Overdue", "Interrupted"]
    """Overdue: its program did not end in time. Interrupted: Kubernetes ended it, which says nothing of the program."""
    problems: tuple[CheckProblem, ...] = ()
    output: str = ""
    trouble: Trouble | None = None
    started: datetime | None = None
    """When its program began to run."""
    not_looked_at: tuple[str, ...] = ()
    """Where states may be declared that the check has not held against the snapshot."""
    warnings: tuple[str, ...] = ()
    """What it has found that is no reason to refuse the revision."""


@dataclass(frozen=True)
class LeavingCheck:
    """A check pod that is being deleted; it holds its name until its node says that it has ended."""

    name: str
    operation: str
    since: datetime
    """When it should have been gone."""


class Revisions(Mapping[str, Mapping[str, Any]]):
    """Name of a ControllerRevision → the spec in it as it is stored, oldest first. Read once, when it is first asked for."""

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
        """The spec of a revision; None if there is none of that name, or nobody can read it."""
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
    completed_at: datetime | None = None
    made_by: str | None = None
    """Job id of the incarnation that it is of, where that is known."""
    deleting: bool = False


@dataclass(frozen=True)
class ActionResult:
    """How the last action ended. In memory only: after a crash the action is simply due again."""

    action: str
    ok: bool
    code: str = ""
    message: str = ""
    request_id: str | None = None


Repaired = Literal["master", "worker", "children"]
"""What is applied again in one piece: a Deployment, or everything around the pods."""


@dataclass(frozen=True)
class Repair:
    """Something that was applied again and is still, or again, as it was before."""

    flaw: str
    """What was found."""
    attempts: int
    """How often in a row it was applied again."""
    at: datetime
    """When it was applied last."""


UNREAD = "cannot be read"
"""In the place of what is wrong with objects that the operator has no right to look at."""


@dataclass(frozen=True)
class Observation:
    """Everything one decision is based on."""

    master: Deployment | None = None
    worker: Deployment | None = None
    pods: tuple[Pod, ...] = ()
    standby: tuple[Pod, ...] = ()
    """Those that stand by for the operation in progress; they are none of `pods`."""
    foreign: tuple[str, ...] = ()
    """Objects of the same name that belong to an earlier FlinkJob and are still being removed."""
    missing: tuple[str, ...] = ()
    """Services, ConfigMap and so on that are missing or changed, each with where."""
    edited: bool = False
    """They are so since the spec was edited, and nobody has touched them."""
    repairs: Mapping[Repaired, Repair] = field(default_factory=dict)
    """What apply does not mend: somebody changes it back."""
    engine: Engine = field(default_factory=Engine)
    storage: Storage = field(default_factory=Storage)
    check: CheckPod | None = None
    leaving: tuple[LeavingCheck, ...] = ()
    """Check pods that are being deleted."""
    revisions: Revisions = field(default_factory=lambda: Revisions({}))
    snapshots: tuple[SnapshotObject, ...] = ()
    late: Mapping[str, StoredSnapshot | None] = field(default_factory=dict)
    """Folders in which a savepoint may have become complete late, as far as storage has answered."""
    last: ActionResult | None = None
    failure: str = ""
    """Why nothing else in here says anything: looking at the job failed in a way that nobody foresaw, or the operator has no right to."""

    @property
    def flaws(self) -> dict[Repaired, str]:
        """What is not as it was applied, and where; a missing master is not repaired but recovered."""
        found: dict[Repaired, str] = {"children": ", ".join(self.missing)}
        if self.worker is None:
            found["worker"] = "missing"
        elif not self.worker.deleting:
            found["worker"] = self.worker.drift
        if self.master is not None and not self.master.deleting:
            found["master"] = self.master.drift
        return {what: flaw for what, flaw in found.items() if flaw}

    def configs(self, job_id: str) -> frozenset[str]:
        """Names of the ConfigMaps that the Deployments of an incarnation take its configuration from."""
        found = (d for d in (self.master, self.worker) if d is not None and not d.deleting and d.job_id == job_id)
        return frozenset(d.config for d in found if d.config)

    @property
    def left(self) -> tuple[Pod, ...]:
        """The pods that may still do something."""
        return tuple(p for p in self.pods if not p.over)

    def pods_of(self, role: Role) -> tuple[Pod, ...]:
        """The pods of one role that may still do something."""
        return tuple(p for p in self.left if p.role == role)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What Kubernetes complains about, each reason once: a lost node first, for much follows from it, then the master's."""
        sources = (self.master, *self.pods_of("master"), self.worker, *self.pods_of("worker"))
        found: dict[str, Trouble] = {}
        for source in sources:
            if source is not None and source.trouble is not None:
                found.setdefault(source.trouble.reason, source.trouble)
        return tuple(sorted(found.values(), key=lambda trouble: trouble.reason != "NodeLost"))

    @property
    def refusal(self) -> Trouble | None:
        """Why pods are not even created: quota, admission."""
        return next((d.trouble for d in (self.master, self.worker) if d is not None and d.trouble is not None), None)

    @property
    def replicas(self) -> int:
        """Pods that the Deployments ask for."""
        return sum(d.replicas for d in (self.master, self.worker) if d is not None and not d.deleting)
