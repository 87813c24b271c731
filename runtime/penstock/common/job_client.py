"""`JobClient`: the control of a running job for the program that started it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.common.completable_future import CompletableFuture
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.common.job_id import JobID
    from penstock.common.job_status import JobStatus


class JobClient(ABC):
    """The result of `execute_async`. Every method returns a future: call `result()` to wait."""

    @abstractmethod
    def get_job_id(self) -> JobID: ...

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]: ...

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop without a savepoint."""

    @abstractmethod
    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool,
        savepoint_directory: str | None = None,
    ) -> CompletableFuture[str]:
        """Stop after a savepoint. The future's result is the savepoint's URL.

        Args:
            advance_to_end_of_event_time: fire all windows and timers first. The job is then finished and cannot
                continue.
            savepoint_directory: None means the value of `execution.checkpointing.savepoint-dir`.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint while the job keeps running. The future's result is the savepoint's URL."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]: ...

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Wait for the end of the job. The future raises the error that made the job fail."""
