"""Plain descriptions of a program's operators, with one class for each kind of operator.

The API records the descriptions, and the graph carries them to the workers. There, `penstock.taskmanager.operators.factory` creates the
operators that execute them. So a program can be written, planned, validated and sent without the code of the operators.

A description contains the facts that are known before the operator runs, such as the keys of its inputs and the user's
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation
    from penstock.common.watermark_strategy import WatermarkAlignment, WatermarkStrategy
    from penstock.connectors.core.sink import Sink as SinkConnector
    from penstock.connectors.core.source import Source as SourceConnector
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
"""A function from a value to its key."""


def constant_key(value: Any) -> int:
    """Return the same key for every record. Windows of the whole stream (`window_all`) use it."""
    return 0


@dataclass(frozen=True)
class Operation:
    """Base of all descriptions."""

    key_type: TypeInformation | None = field(default=None, kw_only=True)
    """Type of keys that are objects of a class (dataclass, NamedTuple, Enum); None for builtin keys.

    The state backend needs the type to create the keys again from their stored form.
    """

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        """One key selector per input, None for an input without a key (the broadcast side). An empty tuple means that the operation has no
        keyed state.
        """
        return ()

    @property
    def is_keyed(self) -> bool:
        """Whether the operation needs keyed state and a key-group exchange before its input."""
        return bool(self.key_selectors)

    @property
    def takes_columns(self) -> bool:
        """Whether its operator works on whole columns. Records are then sent as columns if possible."""
        return False

    def user_functions(self) -> tuple[object, ...]:
        """Return the user's function objects, for validation and error messages."""
        return ()


@dataclass(frozen=True)
class InBatchMode(Operation):
    """Wrapper of an operation in batch mode. The operation reads all of its bounded input before it emits a result.

    Args:
        inner: the wrapped operation. It has a key, or a broadcast input.
        element_types: type of the values of each input; None means any builtin type.
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
    """Return the operation as the program describes it, in any execution mode."""
    return operation.inner if isinstance(operation, InBatchMode) else operation


# --- borders of the job ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source(Operation):
    """Records from outside the job. The watermark strategy applies to each split separately; None means no event time."""

    source: SourceConnector
    strategy: WatermarkStrategy | None = None

    @property
    def alignment(self) -> WatermarkAlignment | None:
        return None if self.strategy is None else self.strategy.alignment


@dataclass(frozen=True)
class Sink(Operation):
    """An output of the job."""

    sink: SinkConnector

    @property
    def takes_columns(self) -> bool:
        return True


def source_of(operation: Operation) -> SourceConnector | None:
    """Return the source connector if the operation is a source."""
    return operation.source if isinstance(operation, Source) else None


def sink_of(operation: Operation) -> SinkConnector | None:
    """Return the sink connector if the operation is a sink."""
    return operation.sink if isinstance(operation, Sink) else None


# --- one function on one stream ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneFunction(Operation):
    """Base of operations with one user function. It has a key selector if it is on a keyed stream and may use keyed state."""

    function: Any
    key_selector: KeySelector | None = None

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return () if self.key_selector is None else (self.key_selector,)

    def user_functions(self) -> tuple[object, ...]:
        return (self.function,)


@dataclass(frozen=True)
class Map(OneFunction):
    """One output record for each input record."""


@dataclass(frozen=True)
class FlatMap(OneFunction):
    """Zero, one or many output records for each input record."""


@dataclass(frozen=True)
class Filter(OneFunction):
    """A filter that keeps records for which the function, or `pyarrow.compute.Expression`, is true."""

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
    """Lists of at most `size` records. No record waits longer than `timeout_ms`."""

    size: int
    timeout_ms: int
    element_type: TypeInformation | None = None


@dataclass(frozen=True)
class Process(OneFunction):
    """A process function. State and timers need a key."""


@dataclass(frozen=True)
class AsyncWait(OneFunction):
    """An async function with at most `capacity` concurrent requests.

    Args:
        timeout_ms: timeout of all attempts of one value together.
        declared: type of the results, None if none was declared.
        element_type: type of the inputs, which are in checkpoints while they wait for an answer; None means any builtin
            type.
    """

    timeout_ms: int = field(kw_only=True)
    capacity: int = field(kw_only=True)
    retry_strategy: AsyncRetryStrategy = field(kw_only=True)
    output_mode: AsyncFunctionDescriptor.OutputMode = field(kw_only=True)
    declared: TypeInformation | None = field(default=None, kw_only=True)
    element_type: TypeInformation | None = field(default=None, kw_only=True)


# --- operations without a function -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Project(Operation):
    """A projection to the fields at these positions, in this order."""

    indexes: tuple[int, ...]

    @property
    def takes_columns(self) -> bool:
        return True


@dataclass(frozen=True)
class Select(Operation):
    """Records with new fields, each from a name and a `pyarrow.compute` expression. `keeps`: whether the existing fields stay, before the
    new ones.
    """

    columns: tuple[tuple[str, Any], ...]
    keeps: bool = False

    @property
    def takes_columns(self) -> bool:
        return True


@dataclass(frozen=True)
class TimestampsAndWatermarks(Operation):
    """Event times and watermarks that are assigned after a source."""

    strategy: WatermarkStrategy

    @property
    def takes_columns(self) -> bool:
        return True

    def user_functions(self) -> tuple[object, ...]:
        assigner = self.strategy.timestamp_assigner
        return () if assigner is None or isinstance(assigner, str) else (assigner,)


# --- continuous results for each key ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Rolling(Operation):
    """Base of operations that emit the key's result so far for every record."""

    key_selector: KeySelector

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return (self.key_selector,)


@dataclass(frozen=True)
class Reduce(Rolling):
    """Each record, combined with the result of the earlier records of the key. `element_type`: type of the records; None means any builtin
    type.
    """

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
    """Windows of a keyed stream. Without a key selector, windows of the whole stream in one subtask.

    Args:
        allowed_lateness_ms: how long a window is kept for late records after its end.
        late_tag: side output of records that are too late. Without a tag, the operator drops and counts these records.
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
    """Base of operations with two inputs. The function is an object with one method per input, or a pair of plain functions.

    Either both inputs have a key, or neither input has a key.
    """

    function: Any
    selectors: tuple[KeySelector, ...] = ()

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return self.selectors

    def user_functions(self) -> tuple[object, ...]:
        return self.function if isinstance(self.function, tuple) else (self.function,)


@dataclass(frozen=True)
class CoMap(TwoInputs):
    """`map1` for records of the first input, `map2` for records of the second."""


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
        element_types: type of the values of each input, for the state; None means any builtin type.
        late_tags: side output of each input for values behind the watermark. Without a tag, the operator drops and counts these values.
    """

    lower_ms: int = field(kw_only=True)
    upper_ms: int = field(kw_only=True)
    element_types: tuple[TypeInformation | None, TypeInformation | None] = (None, None)
    late_tags: tuple[OutputTag | None, OutputTag | None] = (None, None)


@dataclass(frozen=True)
class BroadcastProcess(OneFunction):
    """A stream, with or without a key, connected with a broadcast stream. `descriptors`: the broadcast states."""

    descriptors: tuple[MapStateDescriptor, ...] = ()

    @property
    def key_selectors(self) -> tuple[KeySelector | None, ...]:
        return () if self.key_selector is None else (self.key_selector, None)
