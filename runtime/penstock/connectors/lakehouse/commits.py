"""Adds the files of a checkpoint to a table, or changes its rows by their key, once, whatever becomes of the answers.

    look          has this app's commit of this checkpoint, or of a later one, happened? Then there is nothing to do
    commit        the files of all subtasks, or what their rows change, and the note of it, in one commit of the table
    a conflict    another writer was faster: look and commit again
    no answer     it may have happened: look again. A commit that arrives later meets the one that was made meanwhile, and is
                  refused by the table: every commit follows the state of the table that was looked at

An app is a sink of a job, and its checkpoints' ids rise, so that the last one is all that has to be remembered. A committable names the
app that wrote it: a job that starts from another's savepoint finds what that one has committed.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.common.errors import PenstockError, SinkError
from penstock.connectors.lakehouse.upserts import Changes
from penstock.connectors.sink import Committer
from penstock.connectors.spark.staged import content_of, from_ipc

logger = logging.getLogger(__name__)

TRIES = 12
"""Of one commit, before the job fails over and begins anew."""
_OLD_S = 3600.0
"""Files that have waited for so long are looked for before they are committed: no table is cleaned of younger ones."""
_HINT_EVERY, _MANY_FILES, _SMALL_BYTES = 100, 1000, 8 << 20
"""After how many commits files are counted, and what is worth a hint: so many of less than so many bytes on average."""
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 3.0


class TableLog(ABC):
    """A table as its committer needs it."""

    name: str
    """For errors and logs."""

    @abstractmethod
    def look(self) -> None:
        """See the table as it is now.

        Raises:
            PenstockError: it is gone, or the job's fields do not fit it any more.
        """

    @abstractmethod
    def last_checkpoint(self, app: str) -> int | None:
        """The newest checkpoint that the app has committed, in the table as it was looked at."""

    @abstractmethod
    def notes(self, app: str) -> dict[int, str]:
        """By checkpoint, the digests of the app's commits, from the newest back to where the table's history begins."""

    @abstractmethod
    def append(self, app: str, checkpoint: int, digest: str, files: list[dict[str, Any]]) -> None:
        """Add the files, with a note of the checkpoint; nothing else may have been noted for the app since `look`.

        Raises:
            Exception: it did not happen, or nobody knows.
        """

    @abstractmethod
    def merge(self, app: str, checkpoint: int, digest: str, changes: Changes) -> None:
        """Put the rows in the place of those with their keys, with a note of the checkpoint, as `append` does.

        Raises:
            Exception: it did not happen, or nobody knows.
        """

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """How many files the table has, and bytes in all, as it was looked at."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Whether the file is still there."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """A file that the log does not name; it may be gone."""

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections."""


class TableCommitter(Committer):
    """
    Args:
        app: whose checkpoints have ids that only rise here; committables of other apps may be of old savepoints.
        key: the columns by which rows that wait in the checkpoint (`ChangesWriter`) replace those of the table.
    """

    def __init__(self, log: TableLog, app: str, key: Sequence[str] = (), tries: int = TRIES) -> None:
        self._log = log
        self._app = app
        self._key = tuple(key)
        self._tries = tries
        self._commits = 0
        self._hinted = False

    def commit(self, committables: list[Any]) -> None:
        """
        Raises:
            SinkError: the table does not take the files; the job fails over and tries again.
        """
        groups = _by_checkpoint(committables)
        highest = max((checkpoint for checkpoint, app in groups if app == self._app), default=None)
        for (checkpoint, app), pieces in sorted(groups.items(), key=lambda group: group[0]):
            self._commit_once(app, checkpoint, pieces, highest if app == self._app else None)

    def _commit_once(self, app: str, checkpoint: int, pieces: list[dict[str, Any]], highest: int | None) -> None:
        """
        Args:
            highest: no later checkpoint of the app can have been committed; None: one may.
        """
        files = _files_of(pieces)
        rows = [piece for piece in pieces if "files" not in piece]
        digest = digest_of([*(file["path"] for file in files), *(piece["id"] for piece in rows)])
        last: Exception | None = None
        for attempt in range(self._tries):
            self.check_wanted()
            try:
                self._log.look()
                if self._is_committed(app, checkpoint, digest, highest):
                    return
                if rows:
                    self._log.merge(app, checkpoint, digest, self._changes(checkpoint, rows))
                else:
                    self._check_files(checkpoint, files)
                    self._log.append(app, checkpoint, digest, files)
                self._hint()
                return
            except PenstockError:
                raise
            except Exception as error:
                last = error
                logger.info(
                    "commit of checkpoint %d to table %r, try %d: %s", checkpoint, self._log.name, attempt + 1, error
                )
                time.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2**attempt) * random.uniform(0.5, 1.0))
        raise SinkError(
            f"checkpoint {checkpoint} cannot be committed to table {self._log.name!r} after {self._tries} tries: "
            f"{type(last).__name__}: {str(last)[:1000]}",
            remedy="make the table writable; its rows wait and are committed once when the job tries again. If other "
            "writers are always faster, let them commit less often",
        ) from last

    def _changes(self, checkpoint: int, pieces: list[dict[str, Any]]) -> Changes:
        if not self._key:
            raise SinkError(
                f"rows of checkpoint {checkpoint} that are not committed to table {self._log.name!r} were written by a sink with a key, and "
                "this one has none",
                remedy="start the job once more as it was, stop it with a savepoint, and change the sink then",
            )
        ordered = sorted(pieces, key=lambda piece: piece["subtask"])
        key = tuple(pieces[0].get("key", self._key))  # as it was when they were promised
        return Changes.of(
            key,
            (from_ipc(content_of(piece, self.environment)) for piece in ordered),
            check_wanted=self.check_wanted,
        )

    def _hint(self) -> None:
        """Tell once that there are so many small files that readers suffer."""
        self._commits += 1
        if self._hinted or self._commits % _HINT_EVERY:
            return
        try:
            self._log.look()
            files, size = self._log.size()
        except Exception as error:  # the commit has happened, whatever becomes of the table now
            logger.info("files of table %r are not counted: %s", self._log.name, error)
            return
        if files >= _MANY_FILES and size < files * _SMALL_BYTES:
            self._hinted = True
            logger.warning(
                "table %r has %d files of %d KB on average, which makes it slow to read: compact it now and then (OPTIMIZE, "
                "rewrite_data_files), or let checkpoints come less often",
                self._log.name,
                files,
                size // files // 1024,
            )

    def _check_files(self, checkpoint: int, files: list[dict[str, Any]]) -> None:
        """Nobody could read a table any more that names files which are gone."""
        old_ms = (time.time() - _OLD_S) * 1000
        gone = [
            file["path"] for file in files if file.get("modified", old_ms) < old_ms and not self._log.has(file["path"])
        ]
        if gone:
            raise SinkError(
                f"{len(gone)} files with rows of checkpoint {checkpoint} that are not committed to table {self._log.name!r} are gone, "
                f"such as {gone[0]}",
                remedy="let VACUUM and the removal of orphan files leave files for longer than the job may stand. To go on, put the files "
                "back, or start the job from another savepoint",
            )

    def _is_committed(self, app: str, checkpoint: int, digest: str, highest: int | None) -> bool:
        newest = self._log.last_checkpoint(app)
        if newest is None or newest < checkpoint:
            return False
        notes = self._log.notes(app)
        is_told = notes and min(notes) <= checkpoint
        is_too_new = highest is not None and newest > highest
        if notes.get(checkpoint) != digest if is_told else is_too_new:
            raise SinkError(
                f"table {self._log.name!r} has checkpoint {newest} of {app!r}, and not these rows of checkpoint {checkpoint}: the ids "
                "of this job's checkpoints have begun anew, so its checkpoints were removed by hand",
                remedy="give the job another id, or start it from its newest savepoint",
            )
        logger.info("checkpoint %d was committed to table %r before", checkpoint, self._log.name)
        return True

    def abort(self, committables: list[Any]) -> None:
        """Files that no log names go, but for what may have been committed."""
        groups = _by_checkpoint([piece for piece in committables if piece.get("files")])
        if not groups:
            return
        self._log.look()
        for (checkpoint, app), pieces in groups.items():
            newest = self._log.last_checkpoint(app)
            if newest is not None and newest >= checkpoint:
                continue
            for file in _files_of(pieces):
                self.check_wanted()
                self._log.remove(file["path"])

    def close(self) -> None:
        self._log.close()


def digest_of(names: Iterable[str]) -> str:
    """Tells the files, or pieces, of one commit from those of another."""
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()


def app_of(job_id: str, uid: str) -> str:
    """A sink of a job, as tables name it."""
    return f"penstock/{job_id}/{uid}"


def _by_checkpoint(committables: list[Any]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    groups: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for piece in committables:
        groups[piece["checkpoint"], piece["app"]].append(piece)
    return groups


def _files_of(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [file for piece in pieces for file in piece.get("files", ())]
