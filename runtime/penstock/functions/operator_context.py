"""The context that an operator and its function, reader or writer receive from the task: names, clock, state, metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.common.errors import PenstockError

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.functions.accumulators import Accumulator
    from penstock.state.backend import KeyedStateBackend, OperatorStateBackend
    from penstock.state.timers.internal_timer_service import InternalTimerService


class Clock(Protocol):
    """A clock: the machine's clock in production, a manual clock in `penstock.testing`."""

    def now_ms(self) -> int:
        """Return processing time in ms since the epoch. The machine's clock may be set, so this can jump in both directions."""
        ...

    def monotonic_ms(self) -> int:
        """Return a time in ms that only grows, from an arbitrary start. Use it for intervals, timeouts and idleness."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return int(time.time() * 1e3)

    def monotonic_ms(self) -> int:
        return int(time.monotonic() * 1e3)


class MetricSink(Protocol):
    """The part of the metric group that the runtime needs (see `penstock.metrics`)."""

    def counter(self, name: str) -> Any: ...

    def gauge(self, name: str, value: Callable[[], Any]) -> None: ...

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Any: ...

    def distribution(self, name: str) -> Any: ...

    def add_group(self, name: str, extra: str | None = None) -> MetricSink: ...


def _wake_nothing() -> None:
    """Do nothing. An operator without a task needs no wake-up, because its caller checks for results by itself."""


@dataclass
class OperatorContext:
    """The context of one operator in one subtask.

    `keyed_state` is None on a non-keyed stream. A request for keyed state is then the user's error (`KeyedStateNotAvailable`, remedy:
    key_by). Only keyed operators have `timers`.
    """

    uid: str
    name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    clock: Clock
    operator_state: OperatorStateBackend
    keyed_state: KeyedStateBackend | None = None
    timers: InternalTimerService | None = None
    metrics: MetricSink | None = None
    job_parameters: dict[str, str] = field(default_factory=dict)
    job_id: str = ""
    job_name: str = ""
    user_location: str = ""
    """`file:line` at which the user's program created the operator. Error messages name it."""
    is_restored: bool = False
    restored_meaning: dict[str, Any] = field(default_factory=dict)
    """Meaning of the restored state for the operator that wrote it (`penstock.graph.state_meaning`); empty means unchanged."""
    print_line: Callable[[str], None] | None = None
    """Receives the lines of print sinks; None means that they go to the process's stdout."""
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    """Accumulators of this operator's functions, by name."""
    results: Callable[[str, list[Any]], None] | None = None
    """Sends values to the JobManager with the epoch's ack (execute_and_collect)."""
    wake: Callable[[], None] = _wake_nothing
    """Lets the task call `take_finished` soon. Any thread may call it."""
    auto_watermark_interval_ms: int = 200
    object_store_options: dict[str, Any] = field(default_factory=dict)

    def named_in_errors(self) -> NamedInErrors:
        """Return a context manager that adds the operator and the user's line to errors that do not have them."""
        return NamedInErrors(self)


class NamedInErrors:
    """The context manager of `named_in_errors`. It is a class because sources enter it for every batch, and a generator would be several
    times slower.
    """

    __slots__ = ("_context",)

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, PenstockError):
            error.operator = error.operator or self._context.name
            error.location = error.location or self._context.user_location
