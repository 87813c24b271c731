"""The execution of the commits of transactional sinks. The checkpoint package decides what must be committed and when.

Commits run in a separate thread, in the order of their checkpoints. Every commit is idempotent. A failed commit causes a failover, and the
next attempt repeats the commit from the manifest that promised it. A commit that does not return also causes a failover
(`committer_calls`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from penstock.common.errors import EpochFailed, SinkError
from penstock.common.program.user_frames import naming, raised
from penstock.connectors.core.sink import CommitEnvironment, Sink
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.coordinators.committer_calls import CommitterCalls, Target

Committables = Mapping[str, list[Any]]

POLL_S = 0.2
INTERRUPT_S = 2.0
"""Time in seconds that an interrupted commit has to stop."""

logger = logging.getLogger(__name__)


class SinkCommits:
    """Commits of one job. The JobMaster's thread calls the methods.

    Args:
        object_store_options: fsspec options from the job's settings.
        limit_s: time limit of a call of a committer, in seconds. 0 means no limit.
    """

    def __init__(self, job_id: str, object_store_options: dict[str, Any], limit_s: float = 0.0) -> None:
        self._job_id = job_id
        self._options = object_store_options
        self._limit_s = limit_s
        self._calls = CommitterCalls(limit_s)
        self._sinks: dict[str, tuple[Sink, Target]] = {}
        self._given_up = threading.Event()
        self._running: list[tuple[int, Future[None]]] = []
        self._has_warned = False

    def begin_attempt(
        self,
        graph: JobGraph,
        promised: Committables,
        referenced: Committables,
        attempt: int,
        environment: CommitEnvironment,
        restored: CommitEnvironment | None = None,
    ) -> None:
        """Repeat the commits that the restored manifest promised, and discard output that no snapshot references.

        Args:
            promised: committables of the restored manifest, by uid.
            referenced: committables of every snapshot that may still be restored.
            attempt: leader epoch of the attempt that begins. Output of later attempts must not be removed.
            environment: environment for the commits of this attempt.
            restored: environment for the promised commits, whose files are in the directory of the restored manifest.

        Raises:
            SinkError: a promised commit failed.
            JobFailed: a call exceeded its time limit.
            EpochFailed: the calls were abandoned.
        """
        self.wait()
        for node in graph.operators:
            if node.sink is not None:
                self._sinks.setdefault(node.uid, (node.sink, Target(node.name, node.user_location)))
        self._make_committers()
        self._set_environment(restored or environment)
        self._do(lambda calls: self._commit(calls, promised))
        self._set_environment(environment)
        self._discard(referenced, attempt)

    def _make_committers(self) -> None:
        """Create the missing committers. An abandoned crew is replaced, so all its committers are missing."""
        if self._calls.is_given_up:
            self._calls = CommitterCalls(self._limit_s)
        for uid, (sink, target) in self._sinks.items():
            if uid not in self._calls.committers:
                self._do(partial(self._make, uid, sink, target))

    def _make(self, uid: str, sink: Sink, target: Target, calls: CommitterCalls) -> None:
        with naming(target.name, target.location):
            committer = calls.call(
                target,
                f"creating the committer of sink {target.name!r}",
                lambda: sink.create_committer(self._options, job_id=self._job_id, uid=uid),
            )
        if committer is not None:
            calls.committers[uid] = committer

    def warn_of_repeats(self) -> None:
        """Warn once that at-least-once checkpoints do not hold records back, so an exactly-once sink cannot keep its guarantee."""
        if not self._has_warned:
            self._has_warned = True
            for uid in self._calls.committers:
                logger.warning(
                    "sink %r is exactly-once, but execution.checkpointing.mode is AT_LEAST_ONCE. After a failure, the job can write "
                    "records again that the sink has committed",
                    self._sinks[uid][1].name,
                )

    def end(self, unconfirmed: Committables, needed: Committables, attempt: int) -> None:
        """Remove output that can never become visible, because no usable snapshot references it. The job and its tasks have ended.

        Args:
            unconfirmed: committables that were pre-committed and may not have been committed.
            needed: committables of every snapshot that may still be restored.
            attempt: number of the last attempt.

        Raises:
            SinkError: a target cannot be written to.
            JobFailed, EpochFailed: as in `begin_attempt`.
        """
        self._given_up.clear()
        self._make_committers()
        self.abort(unconfirmed, needed)
        self._discard(needed, attempt + 1)
        self._calls.close()

    def _discard(self, needed: Committables, below_attempt: int) -> None:
        self._do(lambda calls: self._discard_unreferenced(calls, needed, below_attempt))

    def _discard_unreferenced(self, calls: CommitterCalls, needed: Committables, below_attempt: int) -> None:
        for uid, committer in calls.committers.items():
            target = self._sinks[uid][1]
            keep = list(needed.get(uid, ()))
            try:
                calls.call(
                    target,
                    f"removing unfinished pieces of sink {target.name!r}",
                    partial(committer.discard_unreferenced, keep, below_attempt),
                )
            except BaseException as error:
                raise SinkError(
                    f"unfinished pieces of sink {target.name!r} cannot be removed: {raised(error)}",
                    remedy="check that the target is writable",
                    operator=target.name,
                    location=target.location,
                ) from error

    def _set_environment(self, environment: CommitEnvironment) -> None:
        for committer in self._calls.committers.values():
            committer.environment = environment

    def commit(self, checkpoint_id: int, commits: Committables) -> None:
        """Commit in the background the committables that a completed checkpoint promised."""
        calls = self._calls
        self._running.append((checkpoint_id, calls.submit(lambda: self._commit(calls, commits))))

    def _commit(self, calls: CommitterCalls, commits: Committables) -> None:
        for uid, items in commits.items():
            committer = calls.committers.get(uid)
            if committer is None or not items:
                continue
            target = self._sinks[uid][1]
            try:
                calls.call(
                    target,
                    f"committing {len(items)} pieces of sink {target.name!r}",
                    partial(committer.commit, list(items)),
                )
            except BaseException as error:
                raise SinkError(
                    f"{len(items)} pieces of sink {target.name!r} cannot be committed: {raised(error)}",
                    remedy="make the target writable again; the job retries from its last checkpoint",
                    operator=target.name,
                    location=target.location,
                ) from error

    @property
    def committing(self) -> str:
        """Return the name of the sink whose commit is running, or an empty string. Any thread may call it."""
        return self._calls.calling

    @property
    def is_idle(self) -> bool:
        """Return whether no commit is pending, and `take_confirmed` has returned all finished commits."""
        return not self._running

    def take_confirmed(self) -> list[int]:
        """Return the checkpoints whose commits have succeeded since the last call.

        Raises:
            SinkError: a commit failed.
            JobFailed: a commit exceeded its time limit.
        """
        done = [(checkpoint_id, future) for checkpoint_id, future in self._running if future.done()]
        for _, future in done:
            future.result()
        self._running = [entry for entry in self._running if entry not in done]
        self._check_time_limit()
        return [checkpoint_id for checkpoint_id, _ in done]

    def _check_time_limit(self) -> None:
        """Check the time limit. If the crew is abandoned, drop its commits, because the next attempt commits what its manifest promises."""
        try:
            self._calls.check_time_limit()
        finally:
            if self._calls.is_given_up:
                self._running = []

    def abort(self, unconfirmed: Committables, promised: Committables) -> None:
        """Abort the pre-committed output of an attempt that ended, except the output that a manifest promised."""
        for uid, items in unconfirmed.items():
            kept = list(promised.get(uid, ()))
            lost = [item for item in items if item not in kept]
            if uid in self._calls.committers and lost:
                self._do(partial(self._abort, uid, lost))

    def _abort(self, uid: str, lost: list[Any], calls: CommitterCalls) -> None:
        target = self._sinks[uid][1]
        with naming(target.name, target.location):
            calls.call(
                target,
                f"aborting {len(lost)} pieces of sink {target.name!r}",
                lambda: calls.committers[uid].abort(lost),
            )

    def wait(self) -> None:
        """Wait for running commits. Ignore their failures, because a failover commits again.

        Raises:
            JobFailed: a commit exceeded its time limit.
            EpochFailed: the commits were abandoned.
        """
        self._await([future for _, future in self._running])
        self._running = []

    def drain(self) -> None:
        """Wait for running commits. Raise the error of a failed commit, or the errors of `wait`."""
        self._await([future for _, future in self._running])
        for _, future in self._running:
            future.result()

    def _do(self, work: Callable[[CommitterCalls], None]) -> None:
        """Run the work in the crew's thread and wait for it. Raise the error of the work, or the errors of `wait`."""
        calls = self._calls
        future = calls.submit(lambda: work(calls))
        self._await([future])
        future.result()

    def _await(self, futures: Iterable[Future[None]]) -> None:
        while wait(futures, POLL_S).not_done:
            if self._given_up.is_set():
                raise EpochFailed(
                    f"the commit of sink {self.committing!r} was abandoned, because the attempt has ended"
                )
            self._check_time_limit()

    def give_up(self) -> None:
        """Stop waiting for commits, because the job must end. Another thread calls it."""
        self._given_up.set()

    def close(self, patience_s: float = 30.0) -> list[int]:
        """Wait for running commits for a limited time. Return the checkpoints whose commits have succeeded.

        Checkpoints with unconfirmed commits are kept.
        """
        running, self._running = self._running, []
        futures = [future for _, future in running]
        deadline = time.monotonic() + patience_s
        while wait(futures, POLL_S).not_done and time.monotonic() < deadline and not self._given_up.is_set():
            pass
        if self.committing:
            logger.warning(
                "the job has ended, but the commit of sink %r does not return. Its Spark jobs are cancelled, and its other work "
                "ends only with this process. Its checkpoint is kept, so that the commit can be repeated",
                self.committing,
            )
            self._calls.give_up()
            wait(futures, INTERRUPT_S)
        else:
            self._calls.close()
        done = [(checkpoint_id, future) for checkpoint_id, future in running if future.done()]
        return [id for id, future in done if not future.cancelled() and future.exception() is None]
