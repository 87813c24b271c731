"""Commits of transactional sinks: what was pre-committed, what a manifest carries, what is committed (K6, K7).

Committables move through three places. *Held*: pre-committed by a writer, in no completed manifest yet; pieces of an
abandoned checkpoint stay here and go into the next one, because their writers have voted and will not write them again.
*Promised*: named by a completed manifest; they must become visible whatever happens now, so every later manifest carries
them as long as their commit has not been confirmed. *Committed*: gone from both.

Commits run on a thread of their own, in the order of their checkpoints, and are idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from penstock.checkpoint.manifest import Manifest
from penstock.common.errors import SinkError
from penstock.connectors.sink import Committer
from penstock.graph.job_graph import JobGraph

Committables = dict[str, list[Any]]


class SinkCommits:
    """One per job; called from the JobMaster's thread."""

    def __init__(self, object_store_options: dict[str, Any]) -> None:
        self._options = object_store_options
        self._committers: dict[str, Committer] = {}
        self._names: dict[str, str] = {}
        self._held: Committables = {}
        self._promised: list[Committables] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="penstock-commit")
        self._running: list[tuple[Committables, Future[None]]] = []

    def begin_attempt(self, graph: JobGraph, restore: Manifest | None, attempt: int) -> None:
        """Make committers, commit once more what the restored manifest promised, discard what nothing names.

        Raises:
            SinkError: a promised commit cannot be carried out.
        """
        self._wait()
        self._held = {}
        self._promised = []
        commits = {} if restore is None else {uid: list(items) for uid, items in restore.commits.items() if items}
        for node in graph.operators:
            if node.sink is not None and node.uid not in self._committers:
                committer = node.sink.create_committer(self._options)
                if committer is not None:
                    self._committers[node.uid] = committer
                    self._names[node.uid] = node.name
        self._commit(commits)
        for uid, committer in self._committers.items():
            self._discard(uid, committer, commits.get(uid, []), is_first=attempt == 1 and restore is None)

    def _discard(self, uid: str, committer: Committer, keep: list[Any], *, is_first: bool) -> None:
        if is_first:
            return
        try:
            committer.discard_unreferenced(keep)
        except Exception as error:
            raise SinkError(
                f"pieces of an earlier attempt of sink {self._names[uid]!r} cannot be removed: {error}",
                remedy="check that the target can be written",
                operator=self._names[uid],
            ) from error

    def hold(self, uid: str, committables: list[Any]) -> None:
        """Pre-committed by a subtask at a barrier."""
        if committables:
            self._held.setdefault(uid, []).extend(committables)

    def for_manifest(self) -> Committables:
        """What the checkpoint that ends with this barrier must carry: all that is held, and what is not confirmed."""
        self._confirm()
        carried: Committables = {}
        for part in (*self._promised, self._held):
            for uid, items in part.items():
                carried.setdefault(uid, []).extend(items)
        return carried

    def complete(self, carried: Committables) -> None:
        """A manifest with these commits is durable: commit them, in the background."""
        self._confirm()
        fresh: Committables = {}
        for uid, items in carried.items():
            known = [c for part in self._promised for c in part.get(uid, ())]
            new = [item for item in items if item not in known]
            if new:
                fresh[uid] = new
            held = self._held.get(uid, [])
            self._held[uid] = [item for item in held if item not in items]
        if fresh:
            self._promised.append(fresh)
            self._running.append((fresh, self._pool.submit(self._commit, fresh)))

    def commit_now(self) -> None:
        """Without checkpoints, at the end of a bounded job: everything held becomes visible."""
        held, self._held = self._held, {}
        self._commit(held)

    def _commit(self, commits: Mapping[str, list[Any]]) -> None:
        for uid, items in commits.items():
            committer = self._committers.get(uid)
            if committer is None or not items:
                continue
            try:
                committer.commit(items)
            except Exception as error:
                raise SinkError(
                    f"{len(items)} pieces of sink {self._names[uid]!r} cannot be committed: {error}",
                    remedy="make the target writable again; the job retries from its last checkpoint",
                    operator=self._names[uid],
                ) from error

    def _confirm(self) -> None:
        for entry in list(self._running):
            part, future = entry
            if future.done() and future.exception() is None:
                self._running.remove(entry)
                self._promised.remove(part)

    def raise_failure(self) -> None:
        """Raise what a background commit failed with; the job fails over and commits again from its manifest."""
        self._confirm()
        for _, future in self._running:
            if future.done():
                future.result()

    def drain(self) -> None:
        """Wait until every promised commit is done."""
        for _, future in self._running:
            future.result()
        self._confirm()

    def _wait(self) -> None:
        for _, future in self._running:
            future.exception()
        self._running = []

    def close(self) -> None:
        self._wait()
        self._pool.shutdown(wait=True)
