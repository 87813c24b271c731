"""Where the operator dies, or a call fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock_operator.errors import EngineUnreachable, StorageError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable


Mode = Literal["die-before", "die-after", "fail-after", "fail-before", "meanwhile-before", "meanwhile-after"]


class Killed(BaseException):
    """The operator's process is gone. A BaseException, so that nothing in it can hold it up."""


@dataclass
class Fault:
    """What happens at the n-th changing call: death before or after its effect, an error, or somebody else's change."""

    at: int = 0
    mode: Mode = "die-after"
    meanwhile: Callable[[], None] = lambda: None
    """What somebody else does just then."""
    branches: Callable[[int], bool] = lambda number: False
    """Asked at every call: it goes wrong at this one, in this process (`world.branches`)."""
    calls: list[str] = field(default_factory=list)
    struck: str = ""

    def is_over(self) -> None:
        """Nothing goes wrong any more."""
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
        if self.mode.startswith("meanwhile"):
            self.meanwhile()
            return
        if self.mode.startswith("die"):
            raise Killed(self.struck)
        failures = {"rest": EngineUnreachable, "storage": StorageError}
        raise failures.get(call.split()[0], Unavailable)(f"injected: {self.struck}")
