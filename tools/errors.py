"""The errors of the development tools.

Every one of them is for the person at the keyboard: what is wrong, then what to do about it. A command line
prints the message and ends with code 1; only a defect of a tool itself shows a traceback.

``ToolError``
├── ``BuildFailed``       a program or an image could not be built
├── ``Unsupported``       this machine cannot host what was asked for
└── ``NotRunning``        a server that should run does not, or did not come up
"""

from __future__ import annotations


class ToolError(Exception):
    """Something a developer has to mend; ``code`` is stable and may be matched by scripts."""

    code = "tool-error"

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(f"{problem}\n  remedy: {remedy}")
        self.problem = problem
        self.remedy = remedy


class BuildFailed(ToolError):
    """A program or an image could not be built."""

    code = "build-failed"


class Unsupported(ToolError):
    """This machine cannot host what was asked for."""

    code = "unsupported-machine"


class NotRunning(ToolError):
    """A server did not come up, died, or is not there."""

    code = "not-running"
