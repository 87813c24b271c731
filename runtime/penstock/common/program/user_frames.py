"""The user's line that raised an exception, and the part of its traceback that is useful to a person.

A frame belongs to the engine, a library or the user. The user's frames are outside this package, the standard library
and `site-packages`. If the program itself is installed in `site-packages`, every frame outside this package counts as
the user's.
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
_LIBRARIES = (os.path.join(sysconfig.get_path("stdlib"), ""), "<string>", "<attrs generated", "<__array_function__")
_COMPILED = (".pyx", ".pxi", ".pxd")
"""Source files of compiled libraries. Their frames have paths without a directory of packages, such as `pyarrow/error.pxi`."""
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def is_engine(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen "))


def is_user(filename: str) -> bool:
    """Return whether the file belongs to the user's program.

    >>> is_user("/app/job.py"), is_user("<stdin>"), is_user(__file__), is_user(os.__file__), is_user("pyarrow/error.pxi")
    (True, True, False, False, False)
    """
    if is_engine(filename) or filename.startswith(_LIBRARIES) or filename.endswith(_COMPILED):
        return False
    return not any(part in filename for part in _INSTALLED)


def user_frame(frames: Iterable[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Return the innermost frame of the user, or None. The first of `frames` is the outermost one."""
    outside = [frame for frame in frames if not is_engine(frame.filename)]
    user_frames = [frame for frame in outside if is_user(frame.filename)]
    # If all code is installed, the engine calls the user's code first. The frames after that may belong to any library.
    return user_frames[-1] if user_frames else outside[0] if outside else None


def user_line(error: BaseException) -> str:
    """Return ` (at file:line in function)` of the user's innermost line, or an empty text."""
    frame = user_frame(traceback.extract_tb(error.__traceback__))
    return "" if frame is None else f" (at {frame.filename}:{frame.lineno} in {frame.name})"


def user_place(error: BaseException) -> str:
    """Return `file:line` of the user's innermost line that the error passed, or an empty text."""
    user_frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user(frame.filename)]
    return f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else ""


def user_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames before the user's code. Causes have the same form."""
    trace = traceback.TracebackException.from_exception(error)
    pending: list[traceback.TracebackException | None] = [trace]
    while pending:
        part = pending.pop()
        if part is not None:
            part.stack = traceback.StackSummary.from_list(part.stack[_first([f.filename for f in part.stack]) :])
            pending += [part.__cause__, part.__context__]
    return "".join(trace.format())


def program_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the engine's frames. Causes are left out, because the message contains them."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_engine(frame.filename)]
    head = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*head, *traceback.format_exception_only(error)])


def _first(filenames: list[str]) -> int:
    """Return the position of the first frame of the user's code, or else of the first frame outside the engine."""
    for is_wanted in (is_user, lambda filename: not is_engine(filename)):
        for index, filename in enumerate(filenames):
            if is_wanted(filename):
                return index
    return 0


def raised(error: BaseException) -> str:
    """Return `Lookup.open raised RuntimeError: no database (at job.py:12 in open)`, or only the error if no user code raised it."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    line = user_line(error)
    if not line:
        return f"{type(error).__name__}: {error}"
    called = frames[_first([frame.f_code.co_filename for frame in frames])].f_code.co_qualname
    return f"{called} raised {type(error).__name__}: {error}{line}"


@contextmanager
def naming(operator: str, location: str) -> Iterator[None]:
    """Wrap calls of the user's code outside of a task. Errors then name the operator and the user's line.

    Raises:
        UserFunctionError: the user's code raised any exception.
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
        user_error = UserFunctionError(raised(error), operator=operator, location=location)
        user_error.trace = user_traceback(error)
        raise user_error from error
