"""Adds the files of a checkpoint to a table, once, whatever becomes of the answers.

    look          has this app's commit of this checkpoint, or of a later one, happened? Then there is nothing to do
    commit        the files of all subtasks and the note of it, in one commit of the table
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
from typing import Any

from penstock.common.errors import PenstockError, SinkError
from penstock.connectors.sink import Committer

logger = logging.getLogger(__name__)

TRIES = 12
"""Of one commit, before the job fails over and begins anew."""
_OLD_S = 3600.0
"""Files that have waited for so long are looked for before they are committed: no table is cleaned of younger ones."""
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
    """

    def __init__(self, log: TableLog, app: str, tries: int = TRIES) -> None:
        self._log = log
        self._app = app
        self._tries = tries

    def commit(self, committables: list[Any]) -> None:
        """
        Raises:
            SinkError: the table does not take the files; the job fails over and tries again.
        """
        groups = _by_checkpoint(committables)
        highest = max((checkpoint for checkpoint, app in groups if app == self._app), default=None)
        for (checkpoint, app), files in sorted(groups.items()):
            self._commit_once(app, checkpoint, files, highest if app == self._app else None)

    def _commit_once(self, app: str, checkpoint: int, files: list[dict[str, Any]], highest: int | None) -> None:
        """
        Args:
            highest: no later checkpoint of the app can have been committed; None: one may.
        """
        digest = digest_of(files)
        last: Exception | None = None
        for attempt in range(self._tries):
            self.check_wanted()
            try:
                self._log.look()
                if self._is_committed(app, checkpoint, digest, highest):
                    return
                self._check_files(checkpoint, files)
                self._log.append(app, checkpoint, digest, files)
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
            remedy="make the table writable; its rows wait in files and are committed once when the job tries again. If other "
            "writers are always faster, let them commit less often",
        ) from last

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
        groups = _by_checkpoint(committables)
        if not groups:
            return
        self._log.look()
        for (checkpoint, app), files in groups.items():
            newest = self._log.last_checkpoint(app)
            if newest is not None and newest >= checkpoint:
                continue
            for file in files:
                self.check_wanted()
                self._log.remove(file["path"])

    def close(self) -> None:
        self._log.close()


def digest_of(files: list[dict[str, Any]]) -> str:
    """Tells the files of one commit from those of another."""
    names = "\n".join(sorted(file["path"] for file in files))
    return hashlib.blake2b(names.encode(), digest_size=8).hexdigest()


def app_of(job_id: str, uid: str) -> str:
    """A sink of a job, as tables name it."""
    return f"penstock/{job_id}/{uid}"


def _by_checkpoint(committables: list[Any]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    groups: defaultdict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for piece in committables:
        groups[piece["checkpoint"], piece["app"]] += piece["files"]
    return groups
