"""Carries out the commits of transactional sinks (K6, K7). What must be committed when, the checkpoint package says.

Commits run on a thread of their own, in the order of their checkpoints; every one is idempotent, and a failed one fails
the job over, which commits again from the manifest that promised it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from penstock.common.errors import EpochFailed, SinkError
from penstock.common.user_frames import naming, raised
from penstock.connectors.sink import CommitEnvironment, Committer
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.work_thread import WorkThread

Committables = Mapping[str, list[Any]]

POLL_S = 0.2
INTERRUPT_S = 2.0
"""How long a commit that was interrupted may take to give up."""

logger = logging.getLogger(__name__)


class SinkCommits:
    """One per job; called from the JobMaster's thread."""

    def __init__(self, job_id: str, object_store_options: dict[str, Any]) -> None:
        self._job_id = job_id
        self._options = object_store_options
        self._committers: dict[str, Committer] = {}
        self._names: dict[str, str] = {}
        self._locations: dict[str, str] = {}
        self._thread = WorkThread("penstock-commit")
        self._committing = ""
        self._given_up = threading.Event()
        self._running: list[tuple[int, Future[None]]] = []

    def begin_attempt(
        self,
        graph: JobGraph,
        promised: Committables,
        referenced: Committables,
        attempt: int,
        environment: CommitEnvironment,
        restored: CommitEnvironment | None = None,
    ) -> None:
        """Commit once more what the restored manifest promised, and discard what no snapshot names.

        Args:
            promised: committables of the restored manifest, by uid.
            referenced: committables of every snapshot that may still be restored.
            attempt: leader epoch of the attempt that begins; pieces of later ones are not ours to remove.
            environment: for the commits of this attempt.
            restored: for what is promised, whose files lie with the restored manifest.

        Raises:
            SinkError: a promised commit cannot be carried out.
            EpochFailed: it was given up.
        """
        self.wait()
        for node in graph.operators:
            if node.sink is not None and node.uid not in self._committers:
                with naming(node.name, node.user_location):
                    committer = node.sink.create_committer(self._options, job_id=self._job_id, uid=node.uid)
                if committer is not None:
                    self._committers[node.uid] = committer
                    self._names[node.uid] = node.name
                    self._locations[node.uid] = node.user_location
        self._set_environment(restored or environment)
        again = self._thread.submit(lambda: self.commit_now(promised))
        self._await([again])
        again.result()
        self._set_environment(environment)
        self._discard(referenced, attempt)

    def end(self, unconfirmed: Committables, needed: Committables, attempt: int) -> None:
        """The job is over, its tasks are gone: remove what it wrote and no snapshot can make visible any more.

        Args:
            unconfirmed: what was pre-committed and may not have been committed.
            needed: committables of every snapshot that may still be restored.
            attempt: the last one.

        Raises:
            SinkError: a target cannot be written to.
        """
        self.abort(unconfirmed, needed)
        self._discard(needed, attempt + 1)

    def _discard(self, needed: Committables, below_attempt: int) -> None:
        for uid, committer in self._committers.items():
            try:
                committer.discard_unreferenced(list(needed.get(uid, ())), below_attempt)
            except BaseException as error:
                raise SinkError(
                    f"unfinished pieces of sink {self._names[uid]!r} cannot be removed: {raised(error)}",
                    remedy="check that the target can be written",
                    operator=self._names[uid],
                    location=self._locations[uid],
                ) from error

    def _set_environment(self, environment: CommitEnvironment) -> None:
        for committer in self._committers.values():
            committer.environment = environment

    def commit(self, checkpoint_id: int, commits: Committables) -> None:
        """Commit in the background what a completed checkpoint promised."""
        self._running.append((checkpoint_id, self._thread.submit(lambda: self.commit_now(commits))))

    def commit_now(self, commits: Committables) -> None:
        for uid, items in commits.items():
            committer = self._committers.get(uid)
            if committer is None or not items:
                continue
            self._committing = self._names[uid]
            try:
                committer.commit(list(items))
            except BaseException as error:
                raise SinkError(
                    f"{len(items)} pieces of sink {self._names[uid]!r} cannot be committed: {raised(error)}",
                    remedy="make the target writable again; the job retries from its last checkpoint",
                    operator=self._names[uid],
                    location=self._locations[uid],
                ) from error
            finally:
                self._committing = ""

    @property
    def committing(self) -> str:
        """Name of the sink whose commit is being carried out now; empty: none is. From any thread."""
        return self._committing

    @property
    def is_idle(self) -> bool:
        """Nothing is left to be committed, and `take_confirmed` has told of all of it."""
        return not self._running

    def take_confirmed(self) -> list[int]:
        """Checkpoints whose commits have been carried out since the last call.

        Raises:
            SinkError: one could not.
        """
        done = [(checkpoint_id, future) for checkpoint_id, future in self._running if future.done()]
        for _, future in done:
            future.result()
        self._running = [entry for entry in self._running if entry not in done]
        return [checkpoint_id for checkpoint_id, _ in done]

    def abort(self, unconfirmed: Committables, promised: Committables) -> None:
        """An attempt has ended: what it pre-committed and no manifest promised will never be committed."""
        for uid, items in unconfirmed.items():
            committer = self._committers.get(uid)
            kept = list(promised.get(uid, ()))
            lost = [item for item in items if item not in kept]
            if committer is not None and lost:
                with naming(self._names[uid], self._locations[uid]):
                    committer.abort(lost)

    def wait(self) -> None:
        """Wait for running commits; failures are left to whoever looks (a failover commits again).

        Raises:
            EpochFailed: they were given up.
        """
        self._await([future for _, future in self._running])
        self._running = []

    def drain(self) -> None:
        """Wait for running commits; raises what one failed with, and as `wait`."""
        self._await([future for _, future in self._running])
        for _, future in self._running:
            future.result()

    def _await(self, futures: list[Future[None]]) -> None:
        while wait(futures, POLL_S).not_done:
            if self._given_up.is_set():
                raise EpochFailed(f"the commit of sink {self._committing!r} was given up")

    def give_up(self) -> None:
        """Wait for no commit any longer: the job must end (from another thread)."""
        self._given_up.set()

    def close(self, patience_s: float = 30.0) -> list[int]:
        """Wait for running commits, but not for ever; the checkpoints whose commits have been carried out.

        What is not confirmed keeps its checkpoint.
        """
        futures = [future for _, future in self._running]
        deadline = time.monotonic() + patience_s
        while wait(futures, POLL_S).not_done and time.monotonic() < deadline and not self._given_up.is_set():
            pass
        if self._committing:
            self._interrupt()
            wait(futures, INTERRUPT_S)
        done = [(checkpoint_id, future) for checkpoint_id, future in self._running if future.done()]
        for future in futures:
            future.cancel()
        self._running = []
        self._thread.close()
        return [checkpoint_id for checkpoint_id, future in done if future.exception() is None]

    def _interrupt(self) -> None:
        logger.warning(
            "the job is over and the commit of sink %r does not return: its Spark jobs are cancelled; what it does in this "
            "process cannot be ended but with the process. Its checkpoint stays, so that it can be carried out once more",
            self._committing,
        )
        for committer in self._committers.values():
            try:
                committer.interrupt()
            except Exception as error:  # the cluster has gone before
                logger.info("a commit could not be interrupted: %s", error)
