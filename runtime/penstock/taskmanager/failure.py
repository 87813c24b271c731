"""The failure of a task in its ack: the operator, the line of user code, and the traceback.

Errors of the engine name their operator. User code may raise any other exception, in any hook and at any depth. The
frames of the exception show which operator called the hook, so nothing has to be recorded while no error occurs.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import FrameType

from penstock.common.errors import PenstockError, RecoverableError, UserFunctionError
from penstock.common.program.user_frames import is_engine, raised, user_line, user_traceback
from penstock.functions.operator_context import OperatorContext
from penstock.graph.operator import Operator
from penstock.taskmanager.protocol import TaskFailure

_REMEDIES: dict[type[BaseException], str] = {
    SystemExit: "a function must not end its process: raise an exception, or return",
    MemoryError: "give the slot more memory, keep less in the function, or use the rocksdb state backend",
}


def failure_of(error: BaseException) -> TaskFailure:
    """Return the failure that reports an exception which has reached the task."""
    context = context_of(frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if isinstance(error, UserFunctionError) and error.__cause__ is not None and " (at " not in error.message:
        error.message += user_line(error.__cause__)
    if isinstance(error, PenstockError):
        failure = TaskFailure(
            kind=type(error).__name__,
            message="",
            traceback="",
            name=error.operator,
            location=error.location,
            code=error.code,
            recoverable=isinstance(error, RecoverableError),
            detail=error.message,
            remedy=error.remedy,
        )
        if context is not None:
            failure.name = error.operator = failure.name or context.name
            failure.location = error.location = failure.location or context.user_location
    else:
        failure = TaskFailure(
            kind=type(error).__name__,
            message="",
            traceback="",
            name="" if context is None else context.name,
            location="" if context is None else context.user_location,
            code="USER_CODE",
            detail=raised(error),
            remedy=next((of for kind, of in _REMEDIES.items() if isinstance(error, kind)), ""),
        )
    failure.recurs = isinstance(error, ImportError) or isinstance(error.__cause__, ImportError)
    failure.message = str(error) if isinstance(error, PenstockError) else failure.detail
    failure.traceback = user_traceback(error)
    return failure


def context_of(frames: Iterable[FrameType]) -> OperatorContext | None:
    """Return the context of the innermost operator in these frames. The outermost frame comes first."""
    found: OperatorContext | None = None
    for frame in frames:
        operator = frame.f_locals.get("self") if is_engine(frame.f_code.co_filename) else None
        if isinstance(operator, Operator):
            found = getattr(operator, "context", None)
    return found
