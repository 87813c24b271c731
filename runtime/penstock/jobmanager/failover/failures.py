"""Failover: what a job can fail with, which failures end it, and what they are told as.

The problem. State is spread over Python workers, positions are in the JobManager, output is half written, and any process
may be gone at any moment, or only seem to be. Mending the one task that failed would need to know what every other one has
done since; Flink restarts the connected region for that, and here everything that exchanges records is one region anyway.

The way. Nothing is mended. Whatever goes wrong in an epoch becomes one exception in the JobMaster's thread: a failure in an
ack (`JobFailed`), a Spark job, executor or connection that is gone (`EpochFailed`), too many failed checkpoints, storage or a
commit that does not work. `JobMaster.fail_over` records it, asks the restart strategy (`restart`, pure) for a pause, and voids
the attempt: requests that need it fail, unfinished checkpoints are given up. After the pause the job begins as at its first
start: wait for slots (`scheduler`), claim the next leader epoch, take the newest complete checkpoint, commit what its manifest
promised, discard output that no manifest names, rewind the sources, run.

What holds.
- State of a failed attempt is never used again. The attempt's number is the leader epoch, so no two share one; a task that
  is asked for another attempt's state, or for another epoch's, has none (`StateNotLocal`), and acks of an older one are dropped.
- An exception never leaves a task: Spark would retry it, elsewhere, without its state. Spark's own recovery is off.
- A failure that the next attempt would meet again (`_FATAL`, a failed import) ends the job at once, whatever the strategy says; so does a lack
  of slots before the first attempt. Other exceptions of a user's are not among them: the record may come out otherwise, or the service be back.
- Who finds that somebody else has taken over (`Fenced`) does not fail over but stops, and touches nothing.
- Counting is in memory: a JobManager that is started anew begins with fresh attempts. A rescale is no failure.

The whole table, from the outside, is docs/failover.md. Prior art: Flink's ExecutionFailureHandler, RestartBackoffTimeStrategy
and RestartAllFailoverStrategy.
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
"""Codes of failures that another attempt would meet again."""
_DAMAGED = ("CORRUPT_STATE_FILE", "SNAPSHOT_TORN")


class JobFailed(Exception):
    """A task reported a failure."""

    def __init__(self, failure: TaskFailure, host: str = "") -> None:
        self.failure = failure
        self.host = host
        super().__init__(failure.message)


def is_fatal(error: Exception, attempt: int) -> bool:
    """Another attempt would fail alike. `attempt`: number of the one that failed; 0: none had begun."""
    code = error.failure.code if isinstance(error, JobFailed) else getattr(error, "code", "")
    if isinstance(error, JobFailed) and error.failure.comes_again:
        return True
    # A job that has never had its slots is not started again and again: it waited for them long enough.
    return code in _FATAL or (isinstance(error, NotEnoughSlots) and attempt == 0)


def hanging(where: Whereabouts, slot: int, level: int, seen: str) -> JobFailed:
    """A task does not come back, and has said where it is; `seen`: what is amiss because of it."""
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
            remedy="see why this line does not return, or give checkpoints and steps more time",
        )
    )


def offer_instead(error: Exception, earlier: list[str]) -> None:
    """A state file is damaged: add what else the job could be restored from."""
    if isinstance(error, JobFailed) and error.failure.code in _DAMAGED:
        told = f". Earlier checkpoints of this job: {', '.join(earlier) or 'none'}"
        error.failure.remedy += told
        error.failure.message += told


def failure_of(error: BaseException | None) -> PenstockError:
    """What made a job fail, for its author: the user's frames first."""
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
        told = UserFunctionError(
            f"the job failed: {failure.detail or failure.message}",
            remedy=failure.remedy,
            operator=failure.name,
            location=failure.location,
        )
        # What the engine says after it repeats the cause.
        is_ours = failure.code != "USER_CODE"
        told.trace = failure.traceback.split(_CAUSED)[0].rstrip() if is_ours else failure.traceback
        return told
    return error if isinstance(error, PenstockError) else ClusterError(f"the job failed: {error!r}")


def entry_of(error: BaseException, now_ms: int) -> Failure:
    """The entry of the job's exception history."""
    if isinstance(error, JobFailed):
        failure = error.failure
        return Failure(
            now_ms, failure.kind, failure.message, failure.traceback, failure.name, failure.location, error.host
        )
    if isinstance(error, PenstockError):
        told = user_traceback(error)
        return Failure(now_ms, type(error).__name__, str(error), told, error.operator, error.location)
    return Failure(now_ms, type(error).__name__, str(error), "".join(traceback.format_exception(error)))


def _error_classes(root: type[PenstockError]) -> dict[str, type[PenstockError]]:
    """Every class of errors by its code."""
    found = {root.code: root}
    for below in root.__subclasses__():
        found |= _error_classes(below)
    return found
