"""The location of a call in the user's program: `file:line` of the innermost frame outside Penstock."""

from __future__ import annotations

import os
import sys

import penstock
from penstock.common.errors import InvalidJob

_PACKAGE = os.path.dirname(os.path.abspath(penstock.__file__)) + os.sep
_GENERATED = ("<string>", "<attrs generated")
"""Files of the constructors of dataclasses and of attrs. The code of `python -c` also has the first of these names."""


def user_location() -> str:
    """Return `file:line` of the call into Penstock, or an empty text if no such frame exists."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        is_generated = filename.startswith(_GENERATED) and frame.f_code.co_name == "__init__"
        if not is_generated and not filename.startswith((_PACKAGE, "<frozen")):
            return f"{filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""


def refusal(message: str, remedy: str = "", *, operator: str = "") -> InvalidJob:
    """Return an `InvalidJob` that names the user's line.

    >>> str(refusal("the collection is empty", "give type_info")).splitlines()[0]
    '[INVALID_JOB] the collection is empty'
    """
    return InvalidJob(message, remedy=remedy, operator=operator, location=user_location())
