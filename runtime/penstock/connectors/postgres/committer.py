"""The rows of a checkpoint and its id, in one transaction.

Who commits takes a lock of the server's on the sink's name, looks which checkpoints are noted, and writes rows and note together. A
transaction whose answer was lost is over before the lock is free: whoever looks next sees it, or sees that it never was.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import random
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.codec import STAGED_FILE
from penstock.common.errors import PenstockError, PlatformError, SinkError
from penstock.connectors.postgres.client import is_lost, package, quoted
from penstock.connectors.postgres.statements import write_rows
from penstock.connectors.sink import Committer
from penstock.connectors.spark.staged import file_ref, from_ipc

if TYPE_CHECKING:
    from penstock.connectors.postgres.sink import PostgresSink

logger = logging.getLogger(__name__)

NOTES = "penstock_commits"
TRIES = 8
_KEPT = 1000
"""Notes of checkpoints that are kept, of each sink. An older one, of a snapshot that somebody goes back to, is told by its time from one of a
job whose checkpoints' ids have begun anew."""
_LONGEST_PAUSE_S = 5.0


class PostgresCommitter(Committer):
    def __init__(self, sink: PostgresSink) -> None:
        self._sink = sink
        self._connection: Any = None
        self._tries = TRIES

    def prepare(self) -> None:
        """Make the table of notes, if there is none.

        Raises:
            SinkError: it cannot be made.
        """
        psycopg = package()
        try:
            with self._sink.server.connect(SinkError) as connection:
                if connection.execute("select to_regclass(%s)", [quoted(NOTES)]).fetchone()[0] is None:
                    connection.execute(
                        f"create table if not exists {NOTES} (app text not null, checkpoint bigint not null, digest text not null, "
                        "committed_at timestamptz not null default now(), primary key (app, checkpoint))"
                    )
        except psycopg.errors.UniqueViolation:
            return  # somebody else has made it at the same time
        except psycopg.Error as error:
            raise self._sink.server.explained(SinkError, f"table {NOTES!r} cannot be made", error) from error

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
        for attempt in range(self._tries):
            self.check_wanted()
            try:
                if self._connection is None:
                    self._connection = self._sink.server.connect(SinkError)
                with self._connection.transaction():
                    self._write(app, checkpoint, pieces)
                return
            except (PenstockError, package().Error) as error:
                self.close()
                if isinstance(error, PenstockError) and not isinstance(error.__cause__, package().OperationalError):
                    raise
                if not isinstance(error, PenstockError) and not is_lost(error):
                    raise self._refused(checkpoint, error) from error
                if attempt == self._tries - 1:
                    if isinstance(error, PenstockError):
                        raise
                    what = f"checkpoint {checkpoint} cannot be committed after {self._tries} tries"
                    raise self._sink.server.explained(SinkError, what, error) from error
                logger.info("commit of checkpoint %d, try %d: %s", checkpoint, attempt + 1, error)
                time.sleep(min(_LONGEST_PAUSE_S, 0.1 * 2**attempt) * random.uniform(0.5, 1.0))

    def _refused(self, checkpoint: int, error: Exception) -> PlatformError:
        what = f"rows of checkpoint {checkpoint} cannot be written to {self._sink.table!r}"
        explained = self._sink.server.explained(SinkError, what, error)
        explained.remedy += f"; the rows are in checkpoint {checkpoint} and will be written before the job goes on from it: to leave one out, start from an older one"
        return explained

    def _write(self, app: str, checkpoint: int, pieces: list[dict[str, Any]]) -> None:
        connection, sink = self._connection, self._sink
        digest = digest_of(pieces)
        lock = int.from_bytes(hashlib.blake2b(app.encode(), digest_size=8).digest(), signed=True)
        connection.execute("select pg_advisory_xact_lock(%s)", [lock])
        found = connection.execute(
            f"select checkpoint, digest, extract(epoch from committed_at) * 1000 from {NOTES} where app = %s", [app]
        ).fetchall()
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
            logger.info("checkpoint %d was committed to %r before", checkpoint, sink.table)
            return
        batches = (batch for piece in pieces for batch in from_ipc(self._content(piece)).to_batches())
        write_rows(connection, quoted(sink.table), sink.shape.names, sink.key, batches, deletes=sink.deletes)
        connection.execute(
            f"insert into {NOTES} (app, checkpoint, digest) values (%s, %s, %s)", [app, checkpoint, digest]
        )
        connection.execute(
            f"delete from {NOTES} where app = %s and checkpoint < "
            f"(select min(checkpoint) from (select checkpoint from {NOTES} where app = %s order by checkpoint desc limit {_KEPT}) kept)",
            [app, app],
        )
        self.check_wanted()  # what was given up in the middle is rolled back

    def _content(self, piece: dict[str, Any]) -> bytes:
        file = piece.get(STAGED_FILE)
        if file is None:
            return base64.b64decode(piece["content"])
        assert self.environment is not None
        return self.environment.files.read(file_ref(file))

    def interrupt(self) -> None:
        """End the statement that does not return."""
        connection = self._connection
        if connection is not None:
            connection.cancel_safe(timeout=2.0)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def digest_of(pieces: list[dict[str, Any]]) -> str:
    """Tells the rows of one commit from those of another."""
    return hashlib.blake2b("\n".join(sorted(piece["id"] for piece in pieces)).encode(), digest_size=8).hexdigest()
