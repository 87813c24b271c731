"""The committer of a FileSink. It runs in the JobManager and makes parts visible."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.connectors.core.sink import Committer
from penstock.connectors.file.sink.part_file import owner_of
from penstock.connectors.file.sink.recoverable import FINISHED, RecoverableStore

_THREADS = 8


class FileCommitter(Committer):
    """A committer that commits and aborts parts in parallel. Every call may be repeated.

    Args:
        owner: the owner whose pieces may be removed. None means that no pieces are removed.
    """

    def __init__(self, store: RecoverableStore, base_path: str, owner: str | None) -> None:
        self._store = store
        self._base_path = base_path
        self._owner = owner

    def commit(self, committables: list[Any]) -> None:
        self._for_all(self._store.commit, committables)

    def abort(self, committables: list[Any]) -> None:
        """Remove closed parts. Keep parts that were open in an earlier snapshot, because a restore continues them."""
        self._for_all(self._store.abort, [piece for piece in committables if not piece.get("persisted")])

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None) -> None:
        if self._owner is not None:
            self._store.discard_unreferenced(self._base_path, self._owner, keep, below_attempt)

    def _for_all(self, action: Any, committables: list[Any]) -> None:
        closed = [piece for piece in committables if piece["kind"] == FINISHED]

        def carry_out(piece: Any) -> None:
            self.check_wanted()
            action(piece)

        if len(closed) < 2:
            for piece in closed:
                carry_out(piece)
            return
        with ThreadPoolExecutor(min(_THREADS, len(closed)), "file-commit") as pool:
            list(pool.map(carry_out, closed))


def committer_of(store: RecoverableStore, base_path: str, job_id: str, uid: str) -> FileCommitter:
    return FileCommitter(store, base_path, owner_of(job_id, uid) if job_id else None)
