"""The rows of a checkpoint and its id, in one transaction.

The committer locks the sink's name on the server, reads the notes of earlier commits, and writes the rows and a note together. If the
response to a commit is lost, the committer tries again. The server releases the lock only when the first transaction ends, so the next
attempt waits for the lock. This attempt then sees a note only if the first transaction was committed.
"""

from __future__ import annotations

import logging
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import pyarrow as pa

from penstock.common.errors import PlatformError, SinkError
from penstock.connectors.core.sink import Committer
from penstock.connectors.lakehouse.commits import by_checkpoint, digest_of
from penstock.connectors.spark.staged import content_of, from_ipc
from penstock.connectors.tables.server import PATIENCE_S, Reconnecting, TableServer, pauses

logger = logging.getLogger(__name__)

NOTES = "penstock_commits"
KEPT = 1000
"""Number of notes that the table keeps for each sink.

A restore from an old snapshot may commit a checkpoint whose note is deleted. A job whose checkpoint ids restarted at 1 also commits an id
below all notes. The committer distinguishes the two cases by the time at which the rows were written.
"""


class NotingCommitter(Reconnecting, Committer):
    """Committer that writes the rows of a checkpoint and a note of it in one transaction.

    Args:
        table: the name of the table, for errors.
    """

    def __init__(self, server: TableServer, table: str) -> None:
        Reconnecting.__init__(self, server, SinkError)
        self._table = table

    def _connect(self) -> Any:
        self.check_wanted()  # do not connect again for an abandoned commit
        return super()._connect()

    @abstractmethod
    def prepare(self) -> None:
        """Create the table of notes if it does not exist.

        Raises:
            SinkError: the user cannot create the table, or the table has no transactions.
        """

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Return a context manager that commits the statements of its block, or rolls them back after an error."""

    @abstractmethod
    def _lock(self, app: str) -> None:
        """Wait for the app's lock and hold it until the transaction ends."""

    @abstractmethod
    def _noted(self, app: str) -> list[tuple[int, str, float]]:
        """Return all notes of the app: checkpoint, digest and time of the commit (ms by the server's clock)."""

    @abstractmethod
    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write the rows into the table."""

    @abstractmethod
    def _note(self, app: str, checkpoint: int, digest: str) -> None:
        """Store a note of the commit, and delete all notes except the newest `KEPT`."""

    def _refused(self, batches: Iterable[pa.RecordBatch]) -> str:
        """Return the row that the server refuses, as text. Return "" if the server's message already names the row."""
        return ""

    def commit(self, committables: list[Any]) -> None:
        """Commit each checkpoint once, the oldest first.

        Raises:
            SinkError: the server is lost for longer than `PATIENCE_S`, or refuses a row.
        """
        groups = by_checkpoint(committables)
        for (checkpoint, app), pieces in sorted(groups.items(), key=lambda group: group[0]):
            self._commit_once(app, checkpoint, sorted(pieces, key=lambda piece: piece["subtask"]))

    def _commit_once(self, app: str, checkpoint: int, pieces: list[dict[str, Any]]) -> None:
        def commit() -> None:
            self.check_wanted()
            with self._transaction():
                self._write(app, checkpoint, pieces)

        self._retried(
            commit, lambda error, lost: self._failed(error, checkpoint, pieces, lost=lost), pauses(PATIENCE_S)
        )

    def _failed(self, error: Exception, checkpoint: int, pieces: list[dict[str, Any]], *, lost: bool) -> PlatformError:
        """Return an error that explains why the commit failed."""
        if lost:
            problem = f"checkpoint {checkpoint} cannot be committed within {PATIENCE_S:.0f} s"
            return self._server.explained(SinkError, problem, error)
        row = ""
        with suppress(Exception):  # the error below is raised in any case
            row = self._refused(self._batches(pieces))
        problem = f"rows of checkpoint {checkpoint} cannot be written to {self._table!r}" + (row and f", such as {row}")
        explained = self._server.explained(SinkError, problem, error)
        explained.remedy += (
            f"; checkpoint {checkpoint} contains the rows, and a restore from it writes them first. "
            "To drop such a row, start from an older checkpoint"
        )
        return explained

    def _write(self, app: str, checkpoint: int, pieces: list[dict[str, Any]]) -> None:
        digest = digest_of(piece["id"] for piece in pieces)
        self._lock(app)
        found = self._noted(app)
        notes = {number: noted for number, noted, _ in found}
        if notes and max(notes) >= checkpoint:
            newest = max(committed_at for _, _, committed_at in found)
            is_older = checkpoint < min(notes) and max(piece.get("at", 0) for piece in pieces) <= newest
            if not is_older and notes.get(checkpoint) != digest:
                raise SinkError(
                    f"{NOTES} has a note of checkpoint {max(notes)} of {app!r}, but not of these rows of checkpoint {checkpoint}. "
                    "The ids of this job's checkpoints started again at 1, because its checkpoints were deleted",
                    remedy="give the job another id, or start it from its newest savepoint",
                )
            logger.info("checkpoint %d is already committed to %r", checkpoint, self._table)
            return
        self._put(self._batches(pieces))
        self._note(app, checkpoint, digest)
        self.check_wanted()  # an abandoned commit is rolled back

    def _batches(self, pieces: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        return (batch for piece in pieces for batch in from_ipc(content_of(piece, self.environment)).to_batches())


def token() -> str:
    """Return a new random token."""
    return secrets.token_hex(8)
