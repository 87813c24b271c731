"""The interface of the window operator to its implementations `panes`, `grouped` and `sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.functions.operator_context import OperatorContext
    from penstock.taskmanager.operators.results import Results
    from penstock.windowing.assigner import WindowAssigner
    from penstock.windowing.evictor import Evictor
    from penstock.windowing.trigger import Trigger
    from penstock.windowing.window_function import WindowFunctionSpec


class WindowHost(Protocol):
    """The parts of a window operator that its implementations use: the settings, the clock and the output."""

    assigner: WindowAssigner[Any, Any]
    function: WindowFunctionSpec
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any] | None
    allowed_lateness: int
    """Time that an event-time window is kept after its end, in ms."""
    has_key: bool
    context: OperatorContext
    results: Results
    watermark: int
    """Event time of the operator, in ms."""

    @property
    def removed_until(self) -> int:
        """Return the event time (ms) up to which windows have been removed."""
        ...

    def current_watermark(self) -> int:
        """Return the event time of the operator, in ms."""
        ...

    def late(self, value: Any, timestamp: int | None) -> None:
        """Send a late record to the side output, or drop and count it."""
        ...
