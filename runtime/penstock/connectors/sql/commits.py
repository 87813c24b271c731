"""The rows of a checkpoint and its id, in one transaction.

Who commits takes a lock of the server's on the sink's name, looks which checkpoints are noted, and writes rows and note together. A
transaction whose answer was lost is over before the lock is free: whoever looks next sees it, or sees that it never was.
"""

from __future__ import annotations

import hashlib
import logging
import random
import secrets
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

import pyarrow as pa

from penstock.common.errors import PenstockError, PlatformError, SinkError
from penstock.connectors.sink import Committer
from penstock.connectors.spark.staged import content_of, from_ipc

logger = logging.getLogger(__name__)

NOTES = "penstock_commits"
PATIENCE_S = 30.0
"""How long a server that is lost is tried until the job fails over."""
_LONGEST_PAUSE_S = 5.0
KEPT = 1000
"""Notes of checkpoints that are kept, of each sink. An older one, of a snapshot that somebody goes back to, is told by its time from one of a
job whose checkpoints' ids have begun anew."""


def pause(attempt: int) -> float:
    """Seconds until the next try, of the first, second, … that has failed."""
    return min(_LONGEST_PAUSE_S, 0.1 * 2.0**attempt) * random.uniform(0.5, 1.0)


class NotingCommitter(Committer):
    """
    Args:
        table: for errors.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._connection: Any = None

    @abstractmethod
    def _connect(self) -> Any:
        """A connection, for all statements until `close`."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Commits what was done on the connection within it, or takes all of it back."""

    @abstractmethod
    def _lock(self, app: str) -> None:
        """Until the transaction has ended, wait for whoever has it."""

    @abstractmethod
    def _noted(self, app: str) -> list[tuple[int, str, float]]:
        """Checkpoint, digest and time of the commit (ms by the server's clock) of all that is noted for the app."""

    @abstractmethod
    def _put(self, batches: Iterable[pa.RecordBatch]) -> None:
        """The rows into the table."""

    @abstractmethod
    def _note(self, app: str, checkpoint: int, digest: str) -> None:
        """Note the commit, and forget what is older than the newest `KEPT`."""

    @abstractmethod
    def _is_lost(self, error: Exception) -> bool | None:
        """Whether another try may succeed; None: it is no error of the server's."""

    def _refused(self, pieces: list[dict[str, Any]]) -> str:
        """The row that the server does not take, as text, where its own words do not say it."""
        return ""

    @abstractmethod
    def _explained(self, what: str, error: Exception) -> PlatformError: ...

    def commit(self, committables: list[Any]) -> None:
        """
        Raises:
            SinkError: the server is lost for long, or refuses a row.
        """
        groups: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        for piece in committables:
            groups[piece["checkpoint"], piece["app"]].append(piece)
        for (checkpoint, app), pieces in sorted(groups.items(), key=lambda group: group[0]):
            self._commit_once(app, checkpoint, sorted(pieces, key=lambda piece: piece["subtask"]))

    def _commit_once(self, app: str, checkpoint: int, pieces: list[dict[str, Any]]) -> None:
        attempt, until = 0, 0.0
        while True:
            self.check_wanted()
            try:
                if self._connection is None:
                    self._connection = self._connect()
                with self._transaction():
                    self._write(app, checkpoint, pieces)
                return
            except Exception as error:
                self.close()
                until = until or time.monotonic() + PATIENCE_S
                self._refuse_or_pass(error, checkpoint, pieces, is_last=time.monotonic() > until)
                logger.info("commit of checkpoint %d, try %d: %s", checkpoint, attempt + 1, error)
            time.sleep(pause(attempt))
            attempt += 1

    def _refuse_or_pass(
        self, error: Exception, checkpoint: int, pieces: list[dict[str, Any]], *, is_last: bool
    ) -> None:
        """Return if the commit is to be tried again."""
        if isinstance(error, PenstockError):
            cause = error.__cause__
            if is_last or not isinstance(cause, Exception) or not self._is_lost(cause):
                raise error
            return
        lost, row = self._is_lost(error), ""
        if lost is None:
            raise error
        if not lost:
            with suppress(Exception):  # the error is told in any case
                row = self._refused(pieces)
            what = f"rows of checkpoint {checkpoint} cannot be written to {self._table!r}" + (
                row and f", such as {row}"
            )
            told = self._explained(what, error)
            told.remedy += f"; the rows are in checkpoint {checkpoint} and will be written before the job goes on from it: to leave one out, start from an older one"
            raise told from error
        if is_last:
            what = f"checkpoint {checkpoint} cannot be committed within {PATIENCE_S:.0f} s"
            raise self._explained(what, error) from error

    def _write(self, app: str, checkpoint: int, pieces: list[dict[str, Any]]) -> None:
        digest = digest_of(pieces)
        self._lock(app)
        found = self._noted(app)
        notes = {number: noted for number, noted, _ in found}
        if notes and max(notes) >= checkpoint:
            newest = max(committed_at for _, _, committed_at in found)
            is_older = checkpoint < min(notes) and max(piece.get("at", 0) for piece in pieces) <= newest
            if not is_older and notes.get(checkpoint) != digest:
                raise SinkError(
                    f"{NOTES} has checkpoint {max(notes)} of {app!r}, and not these rows of checkpoint {checkpoint}: the ids of this "
                    "job's checkpoints have begun anew, so its checkpoints were removed by hand",
                    remedy="give the job another id, or start it from its newest savepoint",
                )
            logger.info("checkpoint %d was committed to %r before", checkpoint, self._table)
            return
        self._put(batch for piece in pieces for batch in from_ipc(content_of(piece, self.environment)).to_batches())
        self._note(app, checkpoint, digest)
        self.check_wanted()  # what was given up in the middle is rolled back

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it is lost
                connection.close()


def token() -> str:
    """Another one each time."""
    return secrets.token_hex(8)


def digest_of(pieces: list[dict[str, Any]]) -> str:
    """Tells the rows of one commit from those of another."""
    return hashlib.blake2b("\n".join(sorted(piece["id"] for piece in pieces)).encode(), digest_size=8).hexdigest()
