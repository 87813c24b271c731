"""What a task failed with, as its ack tells it: the operator, the line of the user's, then how it came there.

Errors of the engine name their operator. Whatever else user code raises may come out of any hook, at any depth; the
frames it has passed tell whose hook it was, so that nothing has to be noted while all goes well.
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
    """What to tell of an exception that has reached the task."""
    context = context_of(frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if isinstance(error, UserFunctionError) and error.__cause__ is not None and " (at " not in error.message:
        error.message += user_line(error.__cause__)
    if isinstance(error, PenstockError):
        told = TaskFailure(
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
            told.name = error.operator = told.name or context.name
            told.location = error.location = told.location or context.user_location
    else:
        told = TaskFailure(
            kind=type(error).__name__,
            message="",
            traceback="",
            name="" if context is None else context.name,
            location="" if context is None else context.user_location,
            code="USER_CODE",
            detail=raised(error),
            remedy=next((of for kind, of in _REMEDIES.items() if isinstance(error, kind)), ""),
        )
    told.comes_again = isinstance(error, ImportError) or isinstance(error.__cause__, ImportError)
    told.message = str(error) if isinstance(error, PenstockError) else told.detail
    told.traceback = user_traceback(error)
    return told


def context_of(frames: Iterable[FrameType]) -> OperatorContext | None:
    """Of the innermost operator that is at work in these frames, which have the outermost first."""
    found: OperatorContext | None = None
    for frame in frames:
        operator = frame.f_locals.get("self") if is_engine(frame.f_code.co_filename) else None
        if isinstance(operator, Operator):
            found = getattr(operator, "context", None)
    return found
