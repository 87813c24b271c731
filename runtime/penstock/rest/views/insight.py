"""Exceptions, accumulators, and the result of a job."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING

from penstock.common.errors import UserFunctionError
from penstock.common.program.user_frames import user_frame
from penstock.rest import facts, models
from penstock.rest.views.ids import duration, vertex_id
from penstock.rest.views.states import ENDED, application_status

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_EXCEPTIONS = 20
_CAUSED = "\nThe above exception was the direct cause"
_RAISED = re.compile(r"([^\W\d][\w.]*)(?::|$)")
_FRAME = re.compile(r'^\s*File "(.+)", line (\d+)', re.MULTILINE)


def job_exceptions(job: facts.Job, limit: int = DEFAULT_EXCEPTIONS) -> models.JobExceptions:
    """Return the newest failures. Older clients read the newest failure as the root exception."""
    newest_first = list(reversed(job.failures))
    shown = newest_first[:limit]
    is_truncated = len(shown) < len(newest_first)
    newest = newest_first[0] if newest_first else None
    return models.JobExceptions(
        root_exception=None if newest is None else stacktrace(newest),
        timestamp=None if newest is None else newest.timestamp,
        all_exceptions=[
            models.OlderException(
                exception=stacktrace(f), task=f.task, location=f.host or "(unassigned)", timestamp=f.timestamp
            )
            for f in shown
        ],
        truncated=is_truncated,
        exception_history=models.ExceptionHistory(
            entries=[
                models.ExceptionEntry(
                    exception_name=f.name,
                    stacktrace=stacktrace(f),
                    timestamp=f.timestamp,
                    task_name=f.task or None,
                    location=f.host or None,
                    endpoint=f.host or None,
                    failure_labels={"user-code": f.location} if f.location else {},
                )
                for f in shown
            ],
            truncated=is_truncated,
        ),
    )


def raised_at(failure: facts.Failure) -> str:
    """Return `file:line` of the user's innermost frame in the traceback, or an empty text if the traceback has no such frame.

    A chain of exceptions ends with the exception that the task reports, so later frames take precedence.
    """
    found = [traceback.FrameSummary(file, int(line), "") for file, line in _FRAME.findall(failure.traceback)]
    frame = user_frame(found)
    return "" if frame is None else f"{frame.filename}:{frame.lineno}"


def cause_name(failure: facts.Failure) -> str:
    """Return the type of the exception that the user's code raised, or else the type of the failure."""
    if failure.name != UserFunctionError.__name__:
        return failure.name
    # The first trace is the user's. Its last frame is followed by the exception, which is the first line without an indent.
    _, _, innermost = failure.traceback.split(_CAUSED)[0].rpartition('\n  File "')
    found = next(filter(None, map(_RAISED.match, innermost.splitlines()[1:])), None)
    return found[1] if found else failure.name


def stacktrace(failure: facts.Failure) -> str:
    """Return the error and the user's line, then the stack trace."""
    head = f"{failure.name}: {failure.message}"
    if failure.location and failure.location not in head:
        head += f"\n  at {failure.location}"
    trace = failure.traceback.strip()
    return f"{head}\n\n{trace}" if trace and trace not in head else head


def job_accumulators(job: facts.Job) -> models.JobAccumulators:
    return models.JobAccumulators(user_task_accumulators=_shown(job.accumulators))


def vertex_accumulators(vertex: facts.Vertex) -> models.VertexAccumulators:
    subtasks = [
        models.SubtaskAccumulators(
            subtask=one.index, attempt=one.attempt, host=one.host, user_accumulators=_shown(one.accumulators)
        )
        for one in vertex.subtasks
    ]
    return models.VertexAccumulators(id=vertex_id(vertex.id), parallelism=vertex.parallelism, subtasks=subtasks)


def subtask_accumulators(vertex: facts.Vertex, subtask: facts.Subtask) -> models.SubtaskAccumulators:
    return models.SubtaskAccumulators(
        subtask=subtask.index,
        attempt=subtask.attempt,
        id=f"{vertex_id(vertex.id)}_{subtask.index}",
        user_accumulators=_shown(subtask.accumulators),
    )


def _shown(accumulators: Sequence[facts.Accumulator]) -> list[models.UserAccumulator]:
    return [models.UserAccumulator(name=one.name, type=one.type, value=one.value) for one in accumulators]


def execution_result(job: facts.Job, now: int) -> models.ExecutionResult:
    """Return the result of an ended job, or IN_PROGRESS."""
    if job.state not in ENDED:
        return models.ExecutionResult(status=models.QueueStatus(id="IN_PROGRESS"))
    cause = None
    if job.state == "FAILED" and job.failures:
        cause = models.FailureCause(class_=job.failures[-1].name, stack_trace=stacktrace(job.failures[-1]))
    return models.ExecutionResult(
        status=models.QueueStatus(id="COMPLETED"),
        job_execution_result=models.JobResult(
            id=job.id,
            application_status=application_status(job.state),
            accumulator_results={a.name: a.value for a in job.accumulators},
            net_runtime=duration(job.start, job.end, now),
            failure_cause=cause,
        ),
    )
