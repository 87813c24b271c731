"""Faults at calls of the operator: its death, or a failure of the call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock_operator.errors import EngineUnreachable, StorageError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


Mode = Literal["die-before", "die-after", "fail-after", "fail-before", "change-before", "change-after"]


class Killed(BaseException):
    """The death of the operator's process. It is a BaseException, so that no handler in the operator catches it."""


@dataclass
class Fault:
    """The fault at the n-th changing call: death before or after its effect, an error, or a change by another actor."""

    at: int = 0
    mode: Mode = "die-after"
    change: Callable[[], None] = lambda: None
    """The change of the other actor."""
    branches: Callable[[int], bool] = lambda number: False
    """A function that is called at every call, and returns whether the fault occurs at this one (`world.branches`)."""
    calls: list[str] = field(default_factory=list)
    struck: str = ""

    def is_over(self) -> None:
        """End the fault: later calls succeed."""
        self.at, self.branches = 0, lambda number: False

    def before(self, call: str) -> None:
        self.calls.append(call)
        if self.branches(len(self.calls)):
            self.at = len(self.calls)
        if len(self.calls) == self.at and self.mode.endswith("before"):
            self._strike(call)

    def after(self, call: str) -> None:
        if len(self.calls) == self.at and self.mode.endswith("after") and not self.struck:
            self._strike(call)

    def _strike(self, call: str) -> None:
        self.struck = f"{self.mode} of call {self.at}: {call}"
        if self.mode.startswith("change"):
            self.change()
            return
        if self.mode.startswith("die"):
            raise Killed(self.struck)
        failures = {"rest": EngineUnreachable, "storage": StorageError}
        raise failures.get(call.split()[0], Unavailable)(f"injected: {self.struck}")
