"""What a task gives an operator, and with it the function, the reader or the writer inside: names, clock, state, metrics."""

from __future__ import annotations

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
    """Processing time. The task's clock in production, a manual one in `penstock.testing`."""

    def now_ms(self) -> int: ...


class MetricSink(Protocol):
    """The part of the metric group that the runtime needs (see `penstock.metrics`)."""

    def counter(self, name: str) -> Any: ...

    def gauge(self, name: str, value: Callable[[], Any]) -> None: ...

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Any: ...

    def distribution(self, name: str) -> Any: ...

    def add_group(self, name: str, extra: str | None = None) -> MetricSink: ...


def _nobody() -> None:
    """Nothing sleeps: whoever drives the operator looks again by itself."""


@dataclass
class OperatorContext:
    """What the task gives an operator. One per operator and subtask.

    `keyed_state` is None on a non-keyed stream; asking for keyed state there is the user's error
    (`KeyedStateNotAvailable`, remedy: key_by). `timers` belongs to keyed operators only, likewise.
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
    """`file:line` where the user's program made the operator; error messages name it."""
    is_restored: bool = False
    print_line: Callable[[str], None] | None = None
    """Where print sinks write; None = the process's stdout."""
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    """Of this operator's functions, by name."""
    results: Callable[[str, list[Any]], None] | None = None
    """Hands values to the JobManager with the epoch's ack (execute_and_collect)."""
    wake: Callable[[], None] = _nobody
    """Have the task call `take_finished` soon. From any thread."""
    auto_watermark_interval_ms: int = 200
    object_store_options: dict[str, Any] = field(default_factory=dict)

    def named_in_errors(self) -> NamedInErrors:
        """Errors that pass here name the operator and the user's line, if they do not name any yet."""
        return NamedInErrors(self)


class NamedInErrors:
    """A class, as sources enter one for every batch: a generator's context costs several times as much."""

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
