"""Which line of the user's an exception comes from, and what a person should read of its traceback.

Frames are the engine's, a library's or the user's. The user's are those outside this package, the standard library and
`site-packages`; of a program that is itself installed there, every frame outside this package counts.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import penstock
from penstock.common.errors import PenstockError, UserFunctionError

_PACKAGE = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep
_LIBRARIES = (os.path.join(sysconfig.get_path("stdlib"), ""), "<string>", "<attrs generated")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_engine(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen "))


def is_user(filename: str) -> bool:
    """
    >>> is_user("/app/job.py"), is_user("<stdin>"), is_user(__file__), is_user(os.__file__)
    (True, True, False, False)
    """
    if is_engine(filename) or filename.startswith(_LIBRARIES):
        return False
    return not any(part in filename for part in _INSTALLED)


def user_frame(frames: Iterable[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost line of the user's, of frames with the outermost first; None: there is none."""
    outside = [frame for frame in frames if not is_engine(frame.filename)]
    own = [frame for frame in outside if is_user(frame.filename)]
    # All of it installed: what the engine called is the user's, what that called may be anybody's.
    return own[-1] if own else outside[0] if outside else None


def user_line(error: BaseException) -> str:
    """` (at file:line in function)` of the innermost line of the user's; empty: there is none."""
    frame = user_frame(traceback.extract_tb(error.__traceback__))
    return "" if frame is None else f" (at {frame.filename}:{frame.lineno} in {frame.name})"


def user_traceback(error: BaseException) -> str:
    """As Python prints it, without what led to the call of the user's code; causes likewise."""
    told = traceback.TracebackException.from_exception(error)
    pending: list[traceback.TracebackException | None] = [told]
    while pending:
        part = pending.pop()
        if part is not None:
            part.stack = traceback.StackSummary.from_list(part.stack[_first([f.filename for f in part.stack]) :])
            pending += [part.__cause__, part.__context__]
    return "".join(told.format())


def _first(filenames: list[str]) -> int:
    """Where the user's code begins, or at least somebody's who is not the engine."""
    for is_wanted in (is_user, lambda filename: not is_engine(filename)):
        for index, filename in enumerate(filenames):
            if is_wanted(filename):
                return index
    return 0


def raised(error: BaseException) -> str:
    """
    `Lookup.open raised RuntimeError: no database (at job.py:12 in open)`; only the error if no code of the user's did.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    line = user_line(error)
    if not line:
        return f"{type(error).__name__}: {error}"
    called = frames[_first([frame.f_code.co_filename for frame in frames])].f_code.co_qualname
    return f"{called} raised {type(error).__name__}: {error}{line}"


@contextmanager
def naming(operator: str, location: str) -> Iterator[None]:
    """Around calls of the user's code outside of a task: errors that pass name the operator and his line.

    Raises:
        UserFunctionError: his code raised, whatever it was.
    """
    try:
        yield
    except PenstockError as error:
        error.operator = error.operator or operator
        error.location = error.location or location
        raise
    except BaseException as error:
        if not user_line(error):
            raise
        told = UserFunctionError(raised(error), operator=operator, location=location)
        told.trace = user_traceback(error)
        raise told from error
