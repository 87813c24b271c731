"""Failover: the failures of a job, which failures end the job, and their reports.

Problem. State is distributed over Python workers, the JobManager has the positions, and output is half written. Any process may
disappear at any moment, or only seem to disappear. A repair of the failed task alone would need to know what every other task has done
since. Flink restarts the connected region for this reason. In Penstock, everything that exchanges records is one region.

Solution. Nothing is repaired. Every failure of an epoch becomes one exception in the JobMaster's thread:

- a failure in an acknowledgement (`JobFailed`)
- the loss of a Spark job, executor or connection (`EpochFailed`)
- too many failed checkpoints
- a failure of storage or of a commit

`JobMaster.fail_over` records the exception, requests a delay from the restart strategy (`restart_strategies`, pure), and ends the attempt.
It fails requests that need the attempt, and abandons unfinished checkpoints. After the delay, the job starts as at its first start:

1. Wait for slots (`scheduler`).
2. Claim the next leader epoch.
3. Load the newest complete checkpoint.
4. Commit what its manifest promised, and discard output that no manifest references.
5. Rewind the sources, and run.

Invariants.
- State of a failed attempt is never used again. The number of an attempt is its leader epoch, so no two attempts have the same number. A
  task refuses a command that needs the state of another attempt or epoch (`StateNotLocal`). Acknowledgements of older attempts are dropped.
- An exception never leaves a task, because Spark would retry the task elsewhere without its state. Spark's recovery is disabled.
- A failure that the next attempt would repeat (`_FATAL`, a failed import) ends the job at once, whatever the strategy is. A lack of
  slots before the first attempt also ends the job. Other exceptions of user code do not end it. The next attempt may process the record
  without an error, or a service may be available again.
- If a JobManager finds that another one has taken over (`Fenced`), it does not fail over. It stops and changes nothing.
- The counters of the restart strategy are in memory, so a restarted JobManager begins to count at zero. A rescale is not a failure.

docs/failover.md has the whole table of failures. Prior art: Flink's ExecutionFailureHandler, RestartBackoffTimeStrategy and
RestartAllFailoverStrategy.
"""

from __future__ import annotations

import traceback

from penstock.common.errors import ClusterError, NotEnoughSlots, PenstockError, UserFunctionError
from penstock.common.program.user_frames import user_traceback
from penstock.rest.facts import Failure
from penstock.taskmanager.protocol import TaskFailure, Whereabouts

_CAUSED = "The above exception was the direct cause"
_FATAL = frozenset(
    {
        "INVALID_JOB",
        "KEYED_STATE_NOT_AVAILABLE",
        "STATE_NAME_CONFLICT",
        "STATE_TYPE",
        "STATE_SCHEMA_INCOMPATIBLE",
        "RESTORE_REFUSED",
        "SNAPSHOT_NOT_FOUND",
        "SNAPSHOT_TORN",
        "CORRUPT_STATE_FILE",
        "STATE_FORMAT_UNSUPPORTED",
        "CONDITIONAL_WRITES_UNSUPPORTED",
        "FINAL_CHECKPOINT_REFUSED",
    }
)
"""Codes of failures that another attempt would repeat."""
_DAMAGED = ("CORRUPT_STATE_FILE", "SNAPSHOT_TORN")


class JobFailed(Exception):
    """Error that a task reported."""

    def __init__(self, failure: TaskFailure, host: str = "") -> None:
        self.failure = failure
        self.host = host
        super().__init__(failure.message)


def is_fatal(error: Exception, attempt: int) -> bool:
    """Return whether another attempt would fail in the same way. `attempt` is the number of the failed attempt, or 0 before the first
    attempt.
    """
    code = error.failure.code if isinstance(error, JobFailed) else getattr(error, "code", "")
    if isinstance(error, JobFailed) and error.failure.recurs:
        return True
    # A job that has never had its slots is not restarted repeatedly, because it has already waited for them long enough.
    return code in _FATAL or (isinstance(error, NotEnoughSlots) and attempt == 0)


def hanging(where: Whereabouts, slot: int, level: int, seen: str) -> JobFailed:
    """Return the error for a task that does not return and has reported its location. `seen` describes the effect."""
    at = f" (at {where.line})" if where.line else ""
    detail = f"{seen}: slot {slot}, level {level} has been {where.step} for more than {where.seconds:.0f} s{at}"
    return JobFailed(
        TaskFailure(
            kind="TaskHangs",
            message=detail,
            detail=detail,
            traceback=f"Traceback (most recent call last):\n{where.stack}{detail}\n",
            name=where.operator,
            location=where.location,
            code="USER_CODE",
            remedy="check why this line does not return, or raise the timeouts of checkpoints and steps",
        )
    )


def name_alternatives(error: Exception, restored: str, earlier: list[str]) -> None:
    """Add the restored snapshot and the possible alternatives to the error of damaged state.

    Args:
        restored: URL of the snapshot. Empty if the attempt started without state.
    """
    if isinstance(error, JobFailed) and error.failure.code in _DAMAGED:
        origin = f". The job was restored from {restored}" if restored else ""
        others = f". Earlier checkpoints of this job: {', '.join(earlier) or 'none'}"
        error.failure.detail += origin
        error.failure.remedy += others
        error.failure.message += origin + others


def failure_of(error: BaseException | None) -> PenstockError:
    """Return the cause of a job's failure for its author, with the user's frames first."""
    if isinstance(error, JobFailed):
        failure = error.failure
        kind = _error_classes(PenstockError).get(failure.code)
        if kind is not None and kind is not UserFunctionError:
            return kind(
                f"the job failed: {failure.detail}",
                remedy=failure.remedy,
                operator=failure.name,
                location=failure.location,
            )
        user_error = UserFunctionError(
            f"the job failed: {failure.detail or failure.message}",
            remedy=failure.remedy,
            operator=failure.name,
            location=failure.location,
        )
        # The part after `_CAUSED` only repeats the cause in the engine's words.
        is_ours = failure.code != "USER_CODE"
        user_error.trace = failure.traceback.split(_CAUSED)[0].rstrip() if is_ours else failure.traceback
        return user_error
    return error if isinstance(error, PenstockError) else ClusterError(f"the job failed: {error!r}")


def entry_of(error: BaseException, now_ms: int) -> Failure:
    """Return the entry for the job's exception history."""
    if isinstance(error, JobFailed):
        failure = error.failure
        return Failure(
            now_ms, failure.kind, failure.message, failure.traceback, failure.name, failure.location, error.host
        )
    if isinstance(error, PenstockError):
        trace = user_traceback(error)
        return Failure(now_ms, type(error).__name__, str(error), trace, error.operator, error.location)
    return Failure(now_ms, type(error).__name__, str(error), "".join(traceback.format_exception(error)))


def _error_classes(root: type[PenstockError]) -> dict[str, type[PenstockError]]:
    """Return every class of errors by its code. A class without its own code does not replace its base class."""
    found = {root.code: root}
    for below in root.__subclasses__():
        found = _error_classes(below) | found
    return found
