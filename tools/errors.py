"""The errors of the development tools.

Every error is for the developer who ran the command. It says what is wrong and then what to do. A command line
prints the message and ends with code 1. A traceback appears only for a defect of the tool itself.

``ToolError``
├── ``BuildFailed``       a program or an image could not be built
├── ``Unsupported``       this machine cannot run the requested program
└── ``NotRunning``        a server did not start, or is not running
"""

from __future__ import annotations

from functools import partial


class ToolError(Exception):
    """A problem that the developer must fix. ``code`` is stable, so that scripts can match it."""

    code = "tool-error"

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}\n  remedy: {remedy}")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error with its remedy, so that a process pool can return it."""
        return partial(type(self), remedy=self.remedy), (self.problem,)


class BuildFailed(ToolError):
    """A program or an image could not be built."""

    code = "build-failed"


class Unsupported(ToolError):
    """This machine cannot run the requested program."""

    code = "unsupported-machine"


class NotRunning(ToolError):
    """A server did not start, ended, or is not running."""

    code = "not-running"
