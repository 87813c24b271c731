"""The JobMaster's use of the checkpoint package: storage, coordinator, and the restore of each attempt."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from penstock.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.settings import CheckpointSettings, TerminalState
from penstock.checkpoint.coordinator.termination import ShutdownReport
from penstock.checkpoint.events import Event, JobDescription
from penstock.checkpoint.files.layout import checkpoint_folder
from penstock.checkpoint.files.manifest import OperatorInfo, SourceState
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.fencing import Candidate, Leadership, list_leader_folder
from penstock.checkpoint.leadership.probe import probe
from penstock.checkpoint.leadership.release import read_release
from penstock.checkpoint.recovery.restore import RestorePlan, plan_restore
from penstock.checkpoint.recovery.takeover import Recovery, preview_recovery, take_over
from penstock.checkpoint.store.retrying_store import RetryPolicy
from penstock.common.errors import RestoreRefused, StorageError
from penstock.common.job_status import JobStatus
from penstock.graph.job_graph import JobGraph
from penstock.graph.state_meaning.describe import meaning_of
from penstock.jobmanager.job.ending.job_result import ResultRecord, read_result, store_result
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.validation.declared_state import check_stored_states
from penstock.jobmanager.validation.runtime_mode import check_runtime_mode
from penstock.jobmanager.validation.state_meaning import StateChange, check_state_meaning
from penstock.taskmanager.protocol import RestoreCommand, SubtaskRestore

BACKGROUND_THREADS = 4
_IMPATIENT = RetryPolicy(retry_for=1.0)
"""Retry policy of lookups for which a caller waits. The caller can handle a failure."""
CONFIRM_S = 5.0
"""Time in seconds for a heartbeat that confirms the leadership."""
CLOSE_PATIENCE_S = 10.0
"""Time in seconds for which the end of a job waits for pending storage operations. A copy that does not return is abandoned."""


@dataclass(frozen=True)
class _Lead:
    """The start of this JobManager's leadership in an election."""

    highest_claim: int
    """Highest leader epoch that existed at that time."""
    since_s: float
    """Time after the listing, on the monotonic clock."""
    confirm: Callable[[float, float | None], bool]
    """See `Member.confirm`."""


class JobCheckpoints:
    """Checkpoints of one job. The JobMaster drives `coordinator`.

    Without a configured directory, checkpoints are in a temporary directory that is deleted with the job. A rescale or a restart of
    the job can restore them, but a restarted JobManager cannot.
    """

    def __init__(
        self, job_id: str, settings: JobSettings, restore_path: str = "", plans: dict[str, Any] | None = None
    ) -> None:
        self._temporary = ""
        self._plans = plans or {}
        root = settings.checkpoint_dir
        if not root:
            self._temporary = tempfile.mkdtemp(prefix="penstock-checkpoints-")
            root = f"file://{self._temporary}"
        self._settings = settings
        self._restore_path = restore_path
        self._pool = ThreadPoolExecutor(BACKGROUND_THREADS, thread_name_prefix="penstock-checkpoint")
        self.storage = CheckpointStorage(root, job_id, settings.object_store_options)
        self.coordinator = CheckpointCoordinator(
            self.storage,
            CheckpointSettings(
                interval_ms=settings.checkpoint_interval_ms or None,
                min_pause_ms=settings.checkpoint_min_pause_ms,
                timeout_ms=settings.checkpoint_timeout_ms,
                tolerable_failures=settings.tolerable_failures,
                max_uncommitted=settings.max_uncommitted,
                retained=settings.retained,
                retention="NO_EXTERNALIZED_CHECKPOINTS" if self._temporary else settings.retention,
                savepoint_directory=settings.savepoint_dir
                or None,  # never in the temporary folder, which is deleted with the job
            ),
            self._pool,
        )
        self._plan: RestorePlan | None = None
        self.changes: list[StateChange] = []
        """State that the last `plan` restores in a changed form."""
        self._candidate = Candidate(self.storage, job_id)
        self._recovery: Recovery | None = None
        self._lead: _Lead | None = None
        self._unconfirmed: dict[str, list[Any]] = {}

    @property
    def url(self) -> str:
        """Return the directory into which subtasks write their files."""
        return self.storage.url

    def open(self, graph: JobGraph, allow_non_restored: bool | list[str] = False, *, fresh: bool) -> None:
        """Check whether the job can start, without changing anything: first the snapshot to restore, then the store.

        Raises:
            RestoreRefused: the snapshot does not fit the job, or `fresh` is set and the job has checkpoints.
            StateSchemaIncompatible: a state is declared with another type than in the snapshot. Not every such change can be detected.
            SnapshotNotFound, SnapshotTorn, StateFormatUnsupported: the requested snapshot cannot be read.
            StorageError: the store cannot be used.
            ConditionalWritesUnsupported: the store cannot be used in HA mode.
        """
        try:
            snapshot = preview_recovery(self.storage, restore_path=self._restore_path or None)
            if snapshot is not None:
                plan_restore(snapshot.manifest, operator_infos(graph), allow_non_restored)
                check_runtime_mode(graph, snapshot.manifest)
                check_state_meaning(graph, snapshot.manifest)
                check_stored_states(graph, snapshot.manifest)
            probe(self.storage, high_availability=self._settings.ha != "none")
        except StorageError as error:
            if self._settings.checkpoint_dir and self.storage.url in error.message:
                error.message += f" (execution.checkpointing.dir is {self._settings.checkpoint_dir})"
            raise
        if fresh:
            ids = self.storage.checkpoint_ids()
            if ids:
                raise RestoreRefused(
                    f"the job was started with --fresh, but {self.storage.url} has its checkpoint {ids[-1]}",
                    remedy="start the job with --restore-latest, or with another job id",
                )

    def restore_from(self, path: str) -> None:
        """Set the snapshot of the first start. Call it before `open`."""
        self._restore_path = path

    def is_released(self) -> bool:
        """Return whether a prepared job has been released. If so, set the snapshot of its first start.

        Raises:
            StorageError: the store does not respond.
            SnapshotTorn: the record cannot be read.
        """
        record = read_release(self.storage)
        if record is not None:
            self._restore_path = record.restore
        return record is not None

    def result(self) -> ResultRecord | None:
        """Return the result of the job, or None if it has not ended."""
        return read_result(self.storage)

    def store_result(self, record: ResultRecord) -> None:
        """Store the result of the job. Call it before `close`, and before the end is announced.

        Raises:
            Fenced: another JobManager has taken over the job. The result does not count.
            StorageError: it is unknown whether the result was stored.
        """
        if self._recovery is not None:
            leadership = self._recovery.leadership
            leadership.check()
        elif self._lead is not None:
            leadership = self._claim_for_end(self._lead)
        else:  # a job without an election has ended before its first attempt
            highest_started = max(list_leader_folder(self.storage).bases, default=0)
            store_result(self.storage, msgspec.structs.replace(record, epoch=highest_started))
            return
        epoch, writer = leadership.epoch, leadership.candidate.id
        store_result(self.storage, msgspec.structs.replace(record, epoch=epoch, candidate=writer))
        leadership.check()

    def _claim_for_end(self, lead: _Lead) -> Leadership:
        """Claim a leader epoch for the end of a job that has had no attempt. A JobManager that was frozen must not fence the next leader.

        Raises:
            Fenced: another JobManager has claimed a leader epoch since this one leads.
            StorageError: the election does not confirm that this JobManager leads.
        """
        if not lead.confirm(CONFIRM_S, lead.since_s):
            raise StorageError(
                f"the election does not confirm that this JobManager leads job {self.storage.job_id}",
                remedy="no action is needed if the storage or the Lease of the election responds again",
            )
        return self._candidate.claim(above=lead.highest_claim)

    def begin_lead(self, confirm: Callable[[float, float | None], bool]) -> None:
        """Record that this JobManager leads, and which leader epochs exist now. Call it before the first attempt.

        Args:
            confirm: see `Member.confirm`.
        """
        highest = list_leader_folder(self.storage).highest_claim
        self._lead = _Lead(highest, time.monotonic(), confirm)

    def take_over(self) -> Recovery:
        """Claim the next leader epoch and find the snapshot from which the attempt starts. Nothing else is changed.

        A JobManager that was frozen or cut off could fence the next leader here. So the election must confirm that it still leads. If the
        election does not respond, the claim succeeds only if no other JobManager has claimed an epoch since this one leads.
        """
        is_confirmed = self._lead is None or self._lead.confirm(CONFIRM_S, None)
        above = None if is_confirmed or self._lead is None else self._lead.highest_claim
        path = self._restore_path or None
        recovery = take_over(self.storage, restore_path=path, candidate=self._candidate, above=above)
        self._recovery = recovery
        return recovery

    def check_leads(self) -> None:
        """Check the leadership with one listing, without waiting for a store that is unavailable. Any thread may call it.

        Raises:
            Fenced: another JobManager has taken over.
            StorageError: the store does not respond.
        """
        recovery = self._recovery
        if recovery is not None:
            recovery.leadership.check(self.storage.with_policy(_IMPATIENT))

    def restored(self) -> str:
        """Return the URL of the snapshot from which this attempt started, or an empty string if it started without state."""
        recovery = self._recovery
        return "" if recovery is None or recovery.snapshot is None else recovery.snapshot.url

    def earlier(self) -> list[str]:
        """Return other checkpoints that could be restored, newest first."""
        recovery = self._recovery
        if recovery is None or recovery.snapshot is None:
            return []
        ids = [m.checkpoint_id for m in recovery.retained if m != recovery.snapshot.manifest]
        return [self.location(checkpoint_id) for checkpoint_id in reversed(ids)]

    def plan(self, graph: JobGraph, recovery: Recovery, allow_non_restored: bool | list[str]) -> list[RestoreCommand]:
        """Return the state that each slot restores.

        Raises:
            RestoreRefused: the snapshot does not fit the job. The error shows both sides.
        """
        if recovery.snapshot is None:
            self._plan, self.changes = None, []
            return [RestoreCommand("") for _ in range(graph.slots)]
        manifest = recovery.snapshot.manifest
        plan = self._plan = plan_restore(manifest, operator_infos(graph), allow_non_restored)
        self.changes = check_state_meaning(graph, manifest)
        meanings = {info.uid: info.meaning for info in manifest.operators}
        root = recovery.snapshot.base_url
        commands = []
        for slot in range(graph.slots):
            subtasks = {}
            for node in graph.operators:
                if slot < node.parallelism:
                    state = plan.of(node.uid, slot)
                    if not state.is_empty:
                        subtasks[node.uid] = SubtaskRestore(state.keyed, state.operator, meanings.get(node.uid, {}))
            commands.append(RestoreCommand(root, subtasks, is_foreign=recovery.is_foreign))
        return commands

    def source_states(self) -> dict[str, SourceState]:
        return {} if self._plan is None else self._plan.sources

    @staticmethod
    def referenced(recovery: Recovery) -> dict[str, list[Any]]:
        """Return the committables of every snapshot that may still be restored."""
        found: dict[str, list[Any]] = {}
        manifests = list(recovery.retained)
        if recovery.snapshot is not None:
            manifests.append(recovery.snapshot.manifest)
        for manifest in manifests:
            for uid, items in manifest.commits.items():
                found.setdefault(uid, []).extend(items)
        return found

    def take_unconfirmed(self) -> dict[str, list[Any]]:
        """Return and clear the unconfirmed committables of the previous attempt."""
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        return unconfirmed

    def begin_attempt(self, recovery: Recovery, graph: JobGraph, now_ms: int) -> None:
        self.coordinator.begin(recovery, describe(self.storage.job_id, graph, self._plans), now_ms)

    def end_attempt(self, reason: str, now_ms: int) -> list[Event]:
        """Abort the checkpoints in progress. The events contain the requests that failed with these checkpoints."""
        self._unconfirmed = self.coordinator.end_attempt(reason, now_ms)
        return self.coordinator.tick(now_ms)

    def next_due(self, now_ms: int) -> int | None:
        """Return the time in ms until the next checkpoint is triggered, or None if none is planned."""
        at = self.coordinator.next_action_at()
        return None if at is None else max(0, at - now_ms)

    def location(self, checkpoint_id: int) -> str:
        return self.storage.url_of(checkpoint_folder(checkpoint_id))

    def close(self, status: JobStatus, now_ms: int) -> ShutdownReport:
        """Keep or delete the checkpoints."""
        state: TerminalState = "SUSPENDED"
        if status is JobStatus.FINISHED:
            state = "FINISHED"
        elif status is JobStatus.CANCELED:
            state = "CANCELED"
        elif status is JobStatus.FAILED:
            state = "FAILED"
        report = self.coordinator.shutdown(state, now_ms)
        closing = threading.Thread(target=self._pool.shutdown, name="penstock-checkpoint-end", daemon=True)
        closing.start()
        closing.join(CLOSE_PATIENCE_S)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
        return replace(report, unconfirmed=report.unconfirmed or self._unconfirmed)


def operator_infos(graph: JobGraph) -> list[OperatorInfo]:
    return [
        OperatorInfo(node.uid, node.name, node.parallelism, node.max_parallelism, meaning=meaning_of(node.operation))
        for node in graph.operators
    ]


def describe(job_id: str, graph: JobGraph, plans: dict[str, Any]) -> JobDescription:
    """Return the description of the graph for the coordinator. `plans`: see `Manifest.plans`."""
    shape = [(node.uid, [(e.side_tag, e.target, e.exchange) for e in node.outputs]) for node in graph.operators]
    return JobDescription(
        job_id=job_id,
        job_name=graph.name,
        parallelism=graph.parallelism,
        max_parallelism=graph.max_parallelism,
        graph_fingerprint=hashlib.sha256(repr(shape).encode()).hexdigest()[:16],
        operators=operator_infos(graph),
        vertices={graph.operators[index].uid: str(stage.id) for stage in graph.stages for index in stage.operators},
        plans=plans,
    )
