"""Carries out the commits of transactional sinks (K6, K7). What must be committed when, the checkpoint package says.

Commits run on a thread of their own, in the order of their checkpoints; every one is idempotent, and a failed one fails
the job over, which commits again from the manifest that promised it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.sink import CommitEnvironment, Committer
from penstock.graph.job_graph import JobGraph

Committables = Mapping[str, list[Any]]


class SinkCommits:
    """One per job; called from the JobMaster's thread."""

    def __init__(self, job_id: str, object_store_options: dict[str, Any]) -> None:
        self._job_id = job_id
        self._options = object_store_options
        self._committers: dict[str, Committer] = {}
        self._names: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="penstock-commit")
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
        """
        self.wait()
        for node in graph.operators:
            if node.sink is not None and node.uid not in self._committers:
                committer = node.sink.create_committer(self._options, job_id=self._job_id, uid=node.uid)
                if committer is not None:
                    self._committers[node.uid] = committer
                    self._names[node.uid] = node.name
        self._set_environment(restored or environment)
        self.commit_now(promised)
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
            except Exception as error:
                raise SinkError(
                    f"unfinished pieces of sink {self._names[uid]!r} cannot be removed: {error}",
                    remedy="check that the target can be written",
                    operator=self._names[uid],
                ) from error

    def _set_environment(self, environment: CommitEnvironment) -> None:
        for committer in self._committers.values():
            committer.environment = environment

    def commit(self, checkpoint_id: int, commits: Committables) -> None:
        """Commit in the background what a completed checkpoint promised."""
        self._running.append((checkpoint_id, self._pool.submit(self.commit_now, commits)))

    def commit_now(self, commits: Committables) -> None:
        for uid, items in commits.items():
            committer = self._committers.get(uid)
            if committer is None or not items:
                continue
            try:
                committer.commit(list(items))
            except Exception as error:
                raise SinkError(
                    f"{len(items)} pieces of sink {self._names[uid]!r} cannot be committed: {error}",
                    remedy="make the target writable again; the job retries from its last checkpoint",
                    operator=self._names[uid],
                ) from error

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
                committer.abort(lost)

    def wait(self) -> None:
        """Wait for running commits; failures are left to whoever looks (a failover commits again)."""
        for _, future in self._running:
            future.exception()
        self._running = []

    def drain(self) -> None:
        """Wait for running commits; raises what one failed with."""
        for _, future in self._running:
            future.result()

    def close(self, patience_s: float = 30.0) -> list[int]:
        """Wait for running commits, but not for ever; the checkpoints whose commits have been carried out.

        What is not confirmed keeps its checkpoint.
        """
        wait([future for _, future in self._running], patience_s)
        done = [(checkpoint_id, future) for checkpoint_id, future in self._running if future.done()]
        self._running = []
        self._pool.shutdown(wait=False, cancel_futures=True)
        return [checkpoint_id for checkpoint_id, future in done if future.exception() is None]
