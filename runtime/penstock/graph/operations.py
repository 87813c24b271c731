"""What an operator of a program is to do: plain descriptions, one class for each kind of operator.

The API records them, the graph carries them to the workers, and there `penstock.taskmanager.operators.factory` makes the
operators that carry them out. So a program can be written, planned, validated and sent without anything that runs it.

A description says what can be known of an operator before it runs: by what its inputs are keyed and which functions of
the user's are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation
    from penstock.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
    from penstock.connectors.sink import Sink as SinkConnector
    from penstock.connectors.source import Source as SourceConnector
    from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
    from penstock.functions.async_io.async_retry_strategies import AsyncRetryStrategy
    from penstock.functions.field_reduce import AggregateKind
    from penstock.functions.output_tag import OutputTag
    from penstock.records.fields import Field
    from penstock.state.descriptors import MapStateDescriptor
    from penstock.windowing.assigner import WindowAssigner
    from penstock.windowing.evictor import Evictor
    from penstock.windowing.trigger import Trigger
    from penstock.windowing.window_function import WindowFunctionSpec

KeySelector = Callable[[Any], Any]
"""From value to key."""


def constant_key(value: Any) -> int:
    """The key of all records where a window spans the whole stream (`window_all`)."""
    return 0


@dataclass(frozen=True)
class Operation:
    """Base of all descriptions."""

    key_type: TypeInformation | None = field(default=None, kw_only=True)
    """Of keys that are objects of a class (dataclass, NamedTuple, Enum), which the state backend must make again from what
    it stored; None for builtin keys."""

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        """One per input, None for an input without a key (the broadcast side); none at all: no keyed state."""
        return ()

    @property
    def is_keyed(self) -> bool:
        """It needs keyed state, and its input comes over a key-group exchange."""
        return bool(self.key_selectors)

    @property
    def takes_columns(self) -> bool:
        """Whether its operator works on whole columns, so that records had better come as columns where they can."""
        return False

    def user_functions(self) -> tuple[object, ...]:
        """The user's function objects, for validation and error messages."""
        return ()


@dataclass(frozen=True)
class InBatchMode(Operation):
    """What another operation says, on bounded input of which all is known before anything is said about it.

    Args:
        inner: it has a key, or a broadcast input.
        element_types: of the values of each input; None: any builtin type.
    """

    inner: Operation
    element_types: tuple[TypeInformation | None, ...] = ()

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return self.inner.key_selectors

    @property
    def takes_columns(self) -> bool:
        return self.inner.takes_columns

    def user_functions(self) -> tuple[object, ...]:
        return self.inner.user_functions()


def plain(operation: Operation) -> Operation:
    """The operation as the program says it, in whatever mode it is carried out."""
    return operation.inner if isinstance(operation, InBatchMode) else operation


# --- what stands at the borders ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source(Operation):
    """Records from outside; the strategy is applied to each split on its own, None: no event time."""

    source: SourceConnector
    strategy: WatermarkStrategy | None = None

    @property
    def alignment(self) -> WatermarkAlignment | None:
        return None if self.strategy is None else self.strategy.alignment


@dataclass(frozen=True)
class Sink(Operation):
    """Records leave the job."""

    sink: SinkConnector

    @property
    def takes_columns(self) -> bool:
        return True


def source_of(operation: Operation) -> SourceConnector | None:
    """What is read, if that is the operation."""
    return operation.source if isinstance(operation, Source) else None


def sink_of(operation: Operation) -> SinkConnector | None:
    """What is written to, if that is the operation."""
    return operation.sink if isinstance(operation, Sink) else None


# --- one function on one stream ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneFunction(Operation):
    """Base: a function of the user's, with a key selector if it stands on a keyed stream and may use keyed state."""

    function: Any
    key_selector: KeySelector | None = None

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return () if self.key_selector is None else (self.key_selector,)

    def user_functions(self) -> tuple[object, ...]:
        return (self.function,)


@dataclass(frozen=True)
class Map(OneFunction):
    """One record out for each in."""


@dataclass(frozen=True)
class FlatMap(OneFunction):
    """No, one or many records out for each in."""


@dataclass(frozen=True)
class Filter(OneFunction):
    """Keeps the records for which the function, or `pyarrow.compute.Expression`, is true."""

    @property
    def is_expression(self) -> bool:
        return type(self.function).__module__ == "pyarrow._compute" and type(self.function).__name__ == "Expression"

    @property
    def takes_columns(self) -> bool:
        return self.is_expression


@dataclass(frozen=True)
class MapBatches(OneFunction):
    """A function from Arrow record batch to Arrow record batch."""

    @property
    def takes_columns(self) -> bool:
        return True


@dataclass(frozen=True)
class Gather(Operation):
    """Lists of at most `size` records, none of which waits longer than `timeout_ms`."""

    size: int
    timeout_ms: int
    element_type: TypeInformation | None = None


@dataclass(frozen=True)
class Process(OneFunction):
    """A process function; state and timers with a key only."""


@dataclass(frozen=True)
class AsyncWait(OneFunction):
    """An async function, `capacity` requests at a time.

    Args:
        timeout_ms: for all attempts of one value.
        declared: type of the results, None if none was declared.
        element_type: of the inputs, which are in checkpoints while they wait for an answer; None: any builtin one.
    """

    timeout_ms: int = field(kw_only=True)
    capacity: int = field(kw_only=True)
    retry_strategy: AsyncRetryStrategy = field(kw_only=True)
    output_mode: AsyncFunctionDescriptor.OutputMode = field(kw_only=True)
    declared: TypeInformation | None = field(default=None, kw_only=True)
    element_type: TypeInformation | None = field(default=None, kw_only=True)


# --- what needs no function -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Project(Operation):
    """Keeps the fields at these positions, in this order."""

    indexes: tuple[int, ...]

    @property
    def takes_columns(self) -> bool:
        return True


@dataclass(frozen=True)
class Select(Operation):
    """Fields by name and `pyarrow.compute` expression; `keeps`: those that the records have come first."""

    columns: tuple[tuple[str, Any], ...]
    keeps: bool = False

    @property
    def takes_columns(self) -> bool:
        return True


@dataclass(frozen=True)
class TimestampsAndWatermarks(Operation):
    """Event times and watermarks behind a source."""

    strategy: WatermarkStrategy

    @property
    def takes_columns(self) -> bool:
        return True

    def user_functions(self) -> tuple[object, ...]:
        assigner = self.strategy.timestamp_assigner
        return () if assigner is None or isinstance(assigner, str) else (assigner,)


# --- what goes on for ever, key by key --------------------------------------------------------------------------


@dataclass(frozen=True)
class Rolling(Operation):
    """Base: for every record the key's result so far."""

    key_selector: KeySelector

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return (self.key_selector,)


@dataclass(frozen=True)
class Reduce(Rolling):
    """Each record combined with the key's value so far; `element_type` of the records, None: any builtin one."""

    function: Any
    element_type: TypeInformation | None = None

    def user_functions(self) -> tuple[object, ...]:
        return (self.function,)


@dataclass(frozen=True)
class RollingAggregate(Rolling):
    """`sum`, `min`, `max`, `min_by` or `max_by` of a field."""

    kind: AggregateKind
    field: Field
    element_type: TypeInformation | None = None


@dataclass(frozen=True)
class RollingFields(Rolling):
    """`(key, *aggregates)` for every record."""

    aggregate: FieldAggregate

    @property
    def takes_columns(self) -> bool:
        return True


# --- windows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window(Operation):
    """Windows of a keyed stream; without a key selector, of the whole stream in one subtask.

    Args:
        allowed_lateness_ms: how long a window is kept for late records after its end (T55).
        late_tag: side output of records that came too late; without it they are dropped and counted (T53, T54).
    """

    assigner: WindowAssigner[Any, Any]
    function: WindowFunctionSpec
    trigger: Trigger[Any, Any]
    key_selector: KeySelector | None = None
    evictor: Evictor[Any] | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return (self.key_selector or constant_key,)

    @property
    def takes_columns(self) -> bool:
        return isinstance(self.function.fold, FieldAggregate)

    def user_functions(self) -> tuple[object, ...]:
        return self.function.functions()


# --- two streams ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoInputs(Operation):
    """Base: a function object with one method per input, or a pair of plain functions; both inputs have a key or none."""

    function: Any
    selectors: tuple[KeySelector, ...] = ()

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return self.selectors

    def user_functions(self) -> tuple[object, ...]:
        return self.function if isinstance(self.function, tuple) else (self.function,)


@dataclass(frozen=True)
class CoMap(TwoInputs):
    """`map1` for records of the first input, `map2` for those of the second."""


@dataclass(frozen=True)
class CoFlatMap(TwoInputs):
    """`flat_map1` and `flat_map2`."""


@dataclass(frozen=True)
class CoProcess(TwoInputs):
    """`process_element1` and `process_element2`."""


@dataclass(frozen=True)
class IntervalJoin(TwoInputs):
    """Pairs with `left time + lower_ms <= right time <= left time + upper_ms`.

    Args:
        element_types: of the values of either input, for the state; any builtin type if None.
        late_tags: side outputs of values behind the watermark; without one they are dropped and counted.
    """

    lower_ms: int = field(kw_only=True)
    upper_ms: int = field(kw_only=True)
    element_types: tuple[TypeInformation | None, TypeInformation | None] = (None, None)
    late_tags: tuple[OutputTag | None, OutputTag | None] = (None, None)


@dataclass(frozen=True)
class BroadcastProcess(OneFunction):
    """A stream, with a key or not, connected with a broadcast one; `descriptors` of the broadcast states."""

    descriptors: tuple[MapStateDescriptor, ...] = ()

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return () if self.key_selector is None else (self.key_selector, None)
