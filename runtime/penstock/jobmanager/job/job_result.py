"""How a job ended, kept beside its checkpoints: a master that starts again must not run a job that is over.

The checkpoints of a job that ended may be gone, and the arguments of its pod still say how it was first started. Only a
record tells the two apart: *not yet run* and *over* (a job stopped with a savepoint is over, too: another incarnation goes
on from it, and what this one would write after it would be written twice).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

RESULT = "result"


class ResultRecord(msgspec.Struct, frozen=True):
    """Content of `<root>/<job-id>/result`. `ended_at` in ms since the epoch."""

    status: JobStatus
    ended_at: int
    end_of_input: bool = False
    """It has read all of its input; False also where a version wrote it that did not say."""


def keep_result(storage: CheckpointStorage, record: ResultRecord) -> None:
    """Note how the job ended, before its checkpoints are deleted. The first word counts.

    >>> storage = CheckpointStorage("memory://doc/result", "job-1")
    >>> keep_result(storage, ResultRecord(JobStatus.FINISHED, 7, end_of_input=True))
    >>> keep_result(storage, ResultRecord(JobStatus.CANCELED, 8))
    >>> read_result(storage)
    ResultRecord(status=<JobStatus.FINISHED: 'FINISHED'>, ended_at=7, end_of_input=True)

    Raises:
        StorageError: it is not known whether the record was stored.
    """
    storage.put_if_absent(RESULT, msgspec.json.encode(record))


def keep_trying(end: Callable[[], None], *, first_pause_s: float = 1.0, longest_pause_s: float = 60.0) -> None:
    """In the background, until it works or the process ends: what ends the job on storage that did not let it be ended.

    A deployed master outlives its job, and would else leave one that runs again when its pod is replaced.

    Args:
        end: raises `PenstockError` while storage refuses or does not answer.
    """

    def run() -> None:
        pause = first_pause_s
        while True:
            time.sleep(pause)
            pause = min(2 * pause, longest_pause_s)
            try:
                end()
            except PenstockError as error:
                logger.warning("how the job ended is not noted yet; tried again in %.0f s: %s", pause, error.message)
            else:
                logger.info("how the job ended is noted")
                return

    threading.Thread(target=run, name="penstock-result", daemon=True).start()


def read_result(storage: CheckpointStorage) -> ResultRecord | None:
    """How the job ended; None: it has not.

    >>> read_result(CheckpointStorage("memory://doc/result", "job-2")) is None
    True

    Raises:
        SnapshotTorn: the record cannot be read.
        StorageError: the store does not answer.
    """
    remedy = "it says how the job ended; remove it only if the job is to run again under this id"
    try:
        return read_record(storage, RESULT, ResultRecord, remedy)
    except ObjectMissing:
        return None
