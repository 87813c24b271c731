"""Add a checkpoint's files to a table, or change its rows by key, exactly once even if answers are lost.

    look          Check whether this app has already committed this checkpoint or a later checkpoint. If so, do nothing.
    commit        Commit the files of all subtasks, or the changes of their rows, together with a note, in one commit of the table.
    a conflict    Another writer was faster: look and commit again.
    no answer     The commit may have happened: look again. If the lost commit arrives later, the table refuses it. Every commit builds
                  on the state that `look` has loaded, and another commit has changed this state.

An app is one sink of one job. Its checkpoint ids only rise, so the committer has to remember only the last id. A
committable names the app that wrote it. A job that starts from another job's savepoint therefore finds the other job's
commits.
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
from penstock.connectors.core.sink import Committer
from penstock.connectors.lakehouse.upserts import Changes
from penstock.connectors.spark.staged import content_of, from_ipc

logger = logging.getLogger(__name__)

TRIES = 12
"""Attempts to commit before the job fails over and restarts."""
_OLD_S = 3600.0
"""Age in seconds from which the committer checks that a file still exists. No cleanup of a table removes files younger than this."""
_HINT_EVERY, _MANY_FILES, _SMALL_BYTES = 100, 1000, 8 << 20
"""The number of commits between two counts of the table's files.

The committer logs a hint if the table has at least `_MANY_FILES` files with an average size below `_SMALL_BYTES`.
"""
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 3.0


class TableLog(ABC):
    """The operations that a committer needs from a table."""

    name: str
    """The table's name for errors and logs."""

    @abstractmethod
    def look(self) -> None:
        """Load the current state of the table.

        Raises:
            PenstockError: the table no longer exists, or the job's fields no longer fit it.
        """

    @abstractmethod
    def last_checkpoint(self, app: str) -> int | None:
        """Return the newest checkpoint that the app has committed, in the state of the last `look`."""

    @abstractmethod
    def notes(self, app: str) -> dict[int, str]:
        """Return the digests of the app's commits by checkpoint, from the newest back to the start of the table's history."""

    @abstractmethod
    def append(self, app: str, checkpoint: int, digest: str, files: list[dict[str, Any]]) -> None:
        """Add the files and a note of the checkpoint. Refuse the commit if the app has noted another checkpoint since `look`.

        Raises:
            Exception: the commit did not happen, or its outcome is unknown.
        """

    @abstractmethod
    def merge(self, app: str, checkpoint: int, digest: str, changes: Changes) -> None:
        """Replace the rows with the same keys, and add a note of the checkpoint as `append` does.

        Raises:
            Exception: the commit did not happen, or its outcome is unknown.
        """

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Return the number of the table's files and their total bytes, in the state of the last `look`."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Return whether the file still exists."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file that the log does not list. A missing file is not an error."""

    def close(self) -> None:  # noqa: B027 - most implementations have nothing to close
        """Close connections."""


class TableCommitter(Committer):
    """A committer that adds the files of each checkpoint to a table exactly once.

    Args:
        app: the app that this run commits for. Its checkpoint ids only rise. Committables of other apps may come from old savepoints.
        key: the columns by which rows from the checkpoint (`ChangesWriter`) replace rows of the table.
    """

    def __init__(self, log: TableLog, app: str, key: Sequence[str] = (), tries: int = TRIES) -> None:
        self._log = log
        self._app = app
        self._key = tuple(key)
        self._tries = tries
        self._commits = 0
        self._hinted = False

    def commit(self, committables: list[Any]) -> None:
        """Commit the checkpoints to the table, in order.

        Raises:
            SinkError: the table does not accept the files. The job fails over and tries again.
        """
        groups = by_checkpoint(committables)
        highest = max((checkpoint for checkpoint, app in groups if app == self._app), default=None)
        for (checkpoint, app), pieces in sorted(groups.items(), key=lambda group: group[0]):
            self._commit_once(app, checkpoint, pieces, highest if app == self._app else None)

    def _commit_once(self, app: str, checkpoint: int, pieces: list[dict[str, Any]], highest: int | None) -> None:
        """Commit one checkpoint of an app, unless the table already has it.

        Args:
            highest: the highest id of a checkpoint that the app may have committed. None means that no limit is known.
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
            remedy="make the table writable. The rows stay in the checkpoint and are committed once when the job tries again. If other "
            "writers are always faster, let them commit less often",
        ) from last

    def _changes(self, checkpoint: int, pieces: list[dict[str, Any]]) -> Changes:
        if not self._key:
            raise SinkError(
                f"rows of checkpoint {checkpoint} are not committed to table {self._log.name!r} yet. They were written by a sink with a key, "
                "but the sink now has none",
                remedy="start the job with the old sink, stop it with a savepoint, and change the sink then",
            )
        ordered = sorted(pieces, key=lambda piece: piece["subtask"])
        key = tuple(pieces[0].get("key", self._key))  # the key at the time when the rows were written
        return Changes.of(
            key,
            (from_ipc(content_of(piece, self.environment)) for piece in ordered),
            check_wanted=self.check_wanted,
        )

    def _hint(self) -> None:
        """Log once that the table has so many small files that reads become slow."""
        self._commits += 1
        if self._hinted or self._commits % _HINT_EVERY:
            return
        try:
            self._log.look()
            files, size = self._log.size()
        except Exception as error:  # the commit has succeeded, so an error here does not matter
            logger.info("the files of table %r cannot be counted: %s", self._log.name, error)
            return
        if files >= _MANY_FILES and size < files * _SMALL_BYTES:
            self._hinted = True
            logger.warning(
                "table %r has %d files of %d KB on average, which makes it slow to read. Compact it regularly (OPTIMIZE, "
                "rewrite_data_files), or increase the checkpoint interval",
                self._log.name,
                files,
                size // files // 1024,
            )

    def _check_files(self, checkpoint: int, files: list[dict[str, Any]]) -> None:
        """Raise an error if files are missing: a table that lists missing files is unreadable."""
        old_ms = (time.time() - _OLD_S) * 1000
        missing = [
            file["path"] for file in files if file.get("modified", old_ms) < old_ms and not self._log.has(file["path"])
        ]
        if missing:
            raise SinkError(
                f"{len(missing)} files with rows of checkpoint {checkpoint} that are not committed to table {self._log.name!r} are gone, "
                f"such as {missing[0]}",
                remedy="let VACUUM and the removal of orphan files keep files for longer than the job may be stopped. To continue, put "
                "the files "
                "back, or start the job from another savepoint",
            )

    def _is_committed(self, app: str, checkpoint: int, digest: str, highest: int | None) -> bool:
        newest = self._log.last_checkpoint(app)
        if newest is None or newest < checkpoint:
            return False
        notes = self._log.notes(app)
        is_noted = notes and min(notes) <= checkpoint
        is_too_new = highest is not None and newest > highest
        if notes.get(checkpoint) != digest if is_noted else is_too_new:
            raise SinkError(
                f"table {self._log.name!r} has checkpoint {newest} of {app!r}, but not these rows of checkpoint {checkpoint}. The job's "
                "checkpoint ids have restarted, because its checkpoints were removed by hand",
                remedy="give the job another id, or start it from its newest savepoint",
            )
        logger.info("checkpoint %d was committed to table %r before", checkpoint, self._log.name)
        return True

    def abort(self, committables: list[Any]) -> None:
        """Remove the files that no log lists, except files that may have been committed."""
        groups = by_checkpoint([piece for piece in committables if piece.get("files")])
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
    """Return a digest that identifies the files, or pieces, of one commit."""
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=8).hexdigest()


def app_of(job_id: str, uid: str) -> str:
    """Return the name under which tables store commits of this sink of this job."""
    return f"penstock/{job_id}/{uid}"


def by_checkpoint(committables: list[Any]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Return the committables of each checkpoint and app."""
    groups: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for piece in committables:
        groups[piece["checkpoint"], piece["app"]].append(piece)
    return groups


def _files_of(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [file for piece in pieces for file in piece.get("files", ())]
