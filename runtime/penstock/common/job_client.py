"""`JobClient`: a running job in the hands of the program that started it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.common.completable_future import CompletableFuture
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.common.job_id import JobID
    from penstock.common.job_status import JobStatus


class JobClient(ABC):
    """What `execute_async` returns. Every answer comes later: call `result()` to wait for it."""

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
        """Stop after a savepoint, whose URL is the answer.

        Args:
            advance_to_end_of_event_time: fire all windows and timers first; the job is then over for good.
            savepoint_directory: None: what `execution.checkpointing.savepoint-dir` says.
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint, whose URL is the answer, and go on."""

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]: ...

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Waits for the end of the job; raises what made it fail."""
