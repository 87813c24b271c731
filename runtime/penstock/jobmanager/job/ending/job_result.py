"""The result of a job, stored beside its checkpoints, so that a restarted master does not run a job that is over.

The checkpoints of an ended job may be deleted, and the arguments of its pod still describe its first start. Only a record distinguishes
*not yet run* from *over*. A job that was stopped with a savepoint is over too. Its successor continues from the
savepoint. If the stopped job ran again, both jobs would write the same output.

A JobManager that is superseded while its job ends must not record the end, because the job runs elsewhere. So a record has the leader epoch
of its writer, and the writer lists the claims before and after the put (`JobCheckpoints.store_result`). A record counts only if no attempt of
a higher leader epoch of another JobManager has started. A new leader reads the record after its claim and before it begins.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.leadership.fencing import candidate_of, list_leader_folder
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import Fenced, PenstockError, StorageError
from penstock.common.job_status import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

RESULT = "result"
OTHERS = "results"
"""Folder of the records that follow a record of a superseded JobManager."""


class ResultRecord(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Content of `<root>/<job-id>/result`. `ended_at` is in ms since the epoch."""

    status: JobStatus
    ended_at: int
    end_of_input: bool = False
    """Whether the job has read all of its input. It is False if an older version without this field wrote the record."""
    epoch: int = 0
    """Leader epoch of the writer. It is 0 if an older version wrote the record."""
    candidate: str = ""
    """Id of the writer (`fencing.Candidate`). After the end, the writer begins one more epoch, in which it deletes the checkpoints."""
    failure: str = ""
    """Failure of a job that is FAILED."""
    savepoint: str = ""
    """Savepoint with which the job was stopped."""


def store_result(storage: CheckpointStorage, record: ResultRecord) -> None:
    """Store the result of the job before its checkpoints are deleted. The first result that counts is final.

    >>> storage = CheckpointStorage("memory://doc/result", "job-1")
    >>> store_result(storage, ResultRecord(JobStatus.FINISHED, 7, end_of_input=True))
    >>> store_result(storage, ResultRecord(JobStatus.CANCELED, 8))
    >>> read_result(storage)
    ResultRecord(status=<JobStatus.FINISHED: 'FINISHED'>, ended_at=7, end_of_input=True)

    Raises:
        StorageError: it is unknown whether the record was stored.
    """
    content = msgspec.json.encode(record)
    if not storage.put_if_absent(RESULT, content) and read_result(storage) is None:
        storage.put_if_absent(f"{OTHERS}/{record.epoch}", content)


def store_or_retry(store: Callable[[], None], close: Callable[[], object]) -> None:
    """Store the result of an ended job.

    Args:
        store: function that stores the result.
        close: function that deletes the checkpoints. It is called only after a retry of `store`. If the first call of
            `store` succeeds, the caller deletes the checkpoints.

    Raises:
        StorageError: the result is not stored yet. Retries of `store` and `close` run in the background.
    """

    def end() -> None:
        store()
        close()

    try:
        store()
    except StorageError:
        retry_in_background(end)
        raise


def store_and_wait(store: Callable[[], None], *, pause_s: float = 1.0) -> None:
    """Store the result of an ended job. If storage does not respond, try again until it does, so that no end is announced without a record.

    Args:
        store: function that stores the result.

    Raises:
        Fenced: another JobManager has taken over the job.
    """
    while True:
        try:
            return store()
        except StorageError as error:
            logger.warning("the result of the job could not be stored, so its end waits: %s", error.message)
        time.sleep(pause_s)


def retry_in_background(end: Callable[[], None], *, first_pause_s: float = 1.0, longest_pause_s: float = 60.0) -> None:
    """Call `end` in the background until it succeeds or the process ends. Use this after storage has prevented the end of a job.

    A deployed master outlives its job. Without the result, the job would run again when the pod is replaced.

    Args:
        end: function that ends the job. It raises `PenstockError` while storage refuses or does not respond, and `Fenced` if another
            JobManager has taken over the job.
    """

    def run() -> None:
        pause = first_pause_s
        while True:
            time.sleep(pause)
            pause = min(2 * pause, longest_pause_s)
            try:
                end()
            except Fenced as error:
                logger.warning("the result of the job is not stored: %s", error.message)
                return
            except PenstockError as error:
                logger.warning(
                    "the result of the job could not be stored; next attempt in %.0f s: %s", pause, error.message
                )
            else:
                logger.info("the result of the job is stored")
                return

    threading.Thread(target=run, name="penstock-result", daemon=True).start()


def read_result(storage: CheckpointStorage) -> ResultRecord | None:
    """Return the result of the job, or None if it has not ended.

    >>> read_result(CheckpointStorage("memory://doc/result", "job-2")) is None
    True

    Raises:
        SnapshotTorn: the record cannot be read.
        StorageError: the store does not respond.
    """
    record = _read(storage, RESULT)
    if record is None or record.epoch == 0:
        return record
    highest_started = max(list_leader_folder(storage).bases, default=0)
    if _counts(storage, record, highest_started):
        return record
    # A put that a crash interrupts leaves a file with another name.
    others = (_read(storage, f"{OTHERS}/{name}") for name in storage.list_names(OTHERS) if name.isdecimal())
    return next((other for other in others if other is not None and _counts(storage, other, highest_started)), None)


def _counts(storage: CheckpointStorage, record: ResultRecord, highest_started: int) -> bool:
    """Return whether a record counts. `highest_started` is the highest leader epoch in which an attempt has started."""
    is_newest = record.epoch >= highest_started
    return is_newest or bool(record.candidate and record.candidate == candidate_of(storage, highest_started))


def _read(storage: CheckpointStorage, name: str) -> ResultRecord | None:
    remedy = "this record has the result of the job. Remove it only to run the job again with this id"
    try:
        return read_record(storage, name, ResultRecord, remedy)
    except ObjectMissing:
        return None
