"""`JobExecutionResult`: the result of a finished job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.common.job_id import JobID


@dataclass(frozen=True)
class JobExecutionResult:
    """The result of a finished job.

    Args:
        job_id: id of the finished job.
        net_runtime: ms from the job's start to its end.
        accumulators: results that functions counted during the run, by name.
    """

    job_id: JobID
    net_runtime: int = 0
    accumulators: Mapping[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        return self.job_id

    def is_job_execution_result(self) -> bool:
        return True

    def get_net_runtime(self) -> int:
        """Return the run time in ms."""
        return self.net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Return the value of an accumulator, or None if no accumulator has that name."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        return dict(self.accumulators)
