"""The end of a job: the JobMaster records it before it announces it, and a job with a recorded end does not run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.common.errors import RestoreRefused, StorageError
from penstock.common.job_status import JobStatus
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.ending.job_result import ResultRecord, store_and_wait, store_or_retry

MAX_FAILURE = 2_000
"""Maximum number of characters of a failure in a record."""


class JobEnd:
    """The end of one job.

    Args:
        configuration: configuration of the job. Its secrets are not recorded.
        is_kept: whether the end is recorded (`JobMasterOptions.keep_result`).
        is_elected: whether masters elect a leader. Then a failure is final too, and no end is announced before it is recorded. Otherwise a
            standby would run the job again.
    """

    def __init__(
        self,
        job_id: str,
        checkpoints: JobCheckpoints,
        configuration: Mapping[str, str],
        *,
        is_kept: bool,
        is_elected: bool,
    ) -> None:
        self._job_id = job_id
        self._configuration = configuration
        self._checkpoints = checkpoints
        self._is_kept, self._is_elected = is_kept, is_elected

    def recorded(self) -> ResultRecord | None:
        """Return the recorded end, or None if the job may run.

        Raises:
            RestoreRefused: the job is FAILED.
        """
        ended = self._checkpoints.result() if self._is_kept else None
        if ended is not None and ended.status is JobStatus.FAILED:
            raise RestoreRefused(
                f"job {self._job_id} has failed and does not run again: {ended.failure}",
                remedy="start the job with another id, and with --restore and its newest checkpoint",
            )
        return ended

    def record(self, result: ResultRecord, error: BaseException | None, close: Callable[[], object]) -> None:
        """Record the end before the checkpoints are deleted. Without a record and without checkpoints, a restarted master would start the
        job from nothing.

        Args:
            error: failure of a job that was accepted. None if the job did not fail, or was never accepted.
            close: function that deletes the checkpoints, for a retry in the background.

        Raises:
            Fenced: another JobManager has taken over the job. This end is void.
            StorageError: the end is not recorded yet.
        """
        is_final_failure = (
            self._is_elected and result.status is JobStatus.FAILED and not isinstance(error, StorageError | None)
        )
        if not self._is_kept or not (is_final_failure or result.status in (JobStatus.FINISHED, JobStatus.CANCELED)):
            return
        if is_final_failure:
            failure = Redaction.of(self._configuration).clean(str(error))
            result = ResultRecord(result.status, result.ended_at, failure=failure[:MAX_FAILURE])

        def store() -> None:
            self._checkpoints.store_result(result)

        if self._is_elected:
            store_and_wait(store)
        else:
            store_or_retry(store, close)
