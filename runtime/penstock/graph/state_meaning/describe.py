"""Descriptions of the meaning of an operator's state. Every snapshot stores the description as a JSON object with the state.

A restore compares the stored description with the description of the new program (`compare`), and reads no state file for this. A
description has the kind of operator, the parameters that decide how state is read, and a version. It contains only
facts that can be compared: a user function has a name, but its code is unknown.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.sink import Sink as SinkConnector
from penstock.connectors.core.source import Source as SourceConnector
from penstock.functions.field_reduce import FieldReduce
from penstock.functions.function import name_of
from penstock.graph import operations
from penstock.records.fields import field_of, position_of
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.assigner import MergingWindowAssigner
from penstock.windowing.count_windows import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
)
from penstock.windowing.sessions import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)
from penstock.windowing.time_windows import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.windowing.trigger_library import PurgingTrigger

if TYPE_CHECKING:
    from penstock.records.fields import Field
    from penstock.windowing.assigner import WindowAssigner
    from penstock.windowing.trigger import Trigger

Meaning = dict[str, Any]

VERSION = 1
"""Version of the descriptions and of the state layouts that they describe. If older code would misread the result of a change, the change
must increase the version.
"""

_CUSTOM = {"connector": "custom"}
"""Description of a connector whose class does not have the library's base class."""
FUNCTION, STATELESS = "function", "stateless"
_TIME_WINDOWS = (
    TumblingEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingProcessingTimeWindows,
    SlidingProcessingTimeWindows,
)
_FIXED_SESSIONS = (EventTimeSessionWindows, ProcessingTimeSessionWindows)
_DYNAMIC_SESSIONS = (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows)


def meaning_of(operation: operations.Operation) -> Meaning:
    """Describe the state of one operator.

    Raises:
        NotImplementedError: no description is defined for operations of this class.

    >>> meaning_of(operations.Gather(10, 1000))
    {'version': 1, 'kind': 'gather', 'keyed': False}
    """
    operation = operations.plain(operation)
    described = {"version": VERSION, **describe(operation), "keyed": operation.is_keyed}
    keys = [None if selector is None else key_name(selector) for selector in operation.key_selectors]
    if any(key is not None for key in keys):
        described["keys"] = keys
    return described


@singledispatch
def describe(operation: operations.Operation) -> Meaning:
    """Describe the facts that are specific to the class of the operation."""
    raise NotImplementedError(f"the state of {type(operation).__qualname__} has no description")


@describe.register(operations.Source)
def _(operation: operations.Source) -> Meaning:
    source = operation.source
    return {"kind": "source", **(source.state_meaning() if isinstance(source, SourceConnector) else _CUSTOM)}


@describe.register(operations.Sink)
def _(operation: operations.Sink) -> Meaning:
    sink = operation.sink
    return {"kind": "sink", **(sink.state_meaning() if isinstance(sink, SinkConnector) else _CUSTOM)}


@describe.register(operations.Map)
@describe.register(operations.FlatMap)
@describe.register(operations.Filter)
@describe.register(operations.MapBatches)
@describe.register(operations.Process)
@describe.register(operations.CoMap)
@describe.register(operations.CoFlatMap)
@describe.register(operations.CoProcess)
@describe.register(operations.BroadcastProcess)
def _(operation: operations.Operation) -> Meaning:
    functions = [unwrapped(function) for function in operation.user_functions()]
    for function in functions:
        if _describes_itself(function):
            return dict(function.state_meaning())
    return {"kind": FUNCTION, "functions": list(map(name_of, functions))}


@describe.register(operations.Project)
@describe.register(operations.Select)
def _(operation: operations.Operation) -> Meaning:
    return {"kind": STATELESS}


@describe.register(operations.TimestampsAndWatermarks)
def _(operation: operations.TimestampsAndWatermarks) -> Meaning:
    return {"kind": "watermarks"}


@describe.register(operations.Gather)
def _(operation: operations.Gather) -> Meaning:
    return {"kind": "gather"}


@describe.register(operations.AsyncWait)
def _(operation: operations.AsyncWait) -> Meaning:
    return {"kind": "async function"}


@describe.register(operations.Reduce)
def _(operation: operations.Reduce) -> Meaning:
    return {"kind": "reduce"}


@describe.register(operations.RollingAggregate)
def _(operation: operations.RollingAggregate) -> Meaning:
    field = field_name(operation.field, operation.element_type)
    return {"kind": "rolling field", "aggregate": operation.kind, "field": field}


@describe.register(operations.RollingFields)
def _(operation: operations.RollingFields) -> Meaning:
    return {"kind": "rolling aggregates", "aggregates": aggregates_of(operation.aggregate)}


@describe.register(operations.IntervalJoin)
def _(operation: operations.IntervalJoin) -> Meaning:
    return {"kind": "interval join", "lower_ms": operation.lower_ms, "upper_ms": operation.upper_ms}


@describe.register(operations.Window)
def _(operation: operations.Window) -> Meaning:
    return {
        "kind": "window",
        "windows": windows_of(operation.assigner),
        "contents": _describe_contents(operation),
        "trigger": trigger_of(operation.trigger),
        "allowed_lateness_ms": operation.allowed_lateness_ms,
        "of": "each key" if operation.key_selector is not None else "the whole stream",
    }


def _describe_contents(operation: operations.Window) -> Meaning:
    spec = operation.function
    if operation.evictor is not None:
        return {"kind": "elements with times"}
    if isinstance(spec.fold, FieldReduce):
        return {"kind": "field", "aggregate": spec.fold.kind, "field": field_name(spec.fold.field, spec.state_type)}
    if isinstance(spec.fold, FieldAggregate):
        return {"kind": "aggregates", "aggregates": aggregates_of(spec.fold)}
    if spec.kind == "aggregate":
        return {"kind": "accumulator", "function": name_of(spec.fold)}
    return {"kind": "reduced"} if spec.kind == "reduce" else {"kind": "elements"}


def windows_of(assigner: WindowAssigner[Any, Any]) -> Meaning:
    """Describe the windows of an assigner. Only the exact classes of the library are known."""
    kind, known = type(assigner), getattr(assigner, "__dict__", {})
    clock = "event time" if assigner.is_event_time() else "processing time"
    if kind in _TIME_WINDOWS:
        lengths = {name: known[name] for name in ("size_ms", "slide_ms", "offset_ms")}
        return {"kind": "time", "clock": clock, **lengths}
    if kind in _FIXED_SESSIONS:
        return {"kind": "sessions", "clock": clock, "gap_ms": known["_gap_ms"]}
    if kind in _DYNAMIC_SESSIONS:
        return {"kind": "sessions", "clock": clock}
    if isinstance(assigner, CountTumblingWindowAssigner | CountSlidingWindowAssigner):
        slide = known.get("window_slide", assigner.window_size)
        return {"kind": "count", "size": assigner.window_size, "slide": slide, "class": kind.__name__}
    if kind is GlobalWindows:
        return {"kind": "global"}
    merges = isinstance(assigner, MergingWindowAssigner)
    return {"kind": "custom", "class": kind.__qualname__, "clock": clock, "merges": merges}


def trigger_of(trigger: Trigger[Any, Any]) -> Meaning:
    """Describe a trigger: its class, and whether it keeps state for each window."""
    if isinstance(trigger, PurgingTrigger):
        inner = trigger_of(trigger.nested_trigger)
        return {**inner, "class": f"PurgingTrigger({inner['class']})"}
    kind = type(trigger)
    is_custom = not kind.__module__.startswith("penstock.")
    return {"class": kind.__qualname__, "custom": is_custom, "stateful": is_custom or trigger.keeps_state}


def aggregates_of(aggregate: FieldAggregate) -> list[list[Any]]:
    """Return the kind and the field of every aggregate, in order.

    >>> aggregates_of(FieldAggregate.of(FieldAggregate.sum("a"), FieldAggregate.max("f1"), FieldAggregate.count()))
    [['sum', 'a'], ['max', 1], ['count', None]]
    """
    named: dict[Field | None, Field | None] = {
        field: field if field is None else field_name(field) for field in aggregate.fields
    }
    if len(set(named.values())) < len(named):  # a field with two spellings has two accumulators
        named = {field: field for field in aggregate.fields}
    return [[part.kind, named.get(part.field)] for part in aggregate.parts]


def field_name(field: Field, element_type: Any = None) -> Field:
    """Return one spelling of a field: its name if the type has names, else its position.

    >>> field_name("f2"), field_name("_1"), field_name("price"), field_name(3)
    (2, 0, 'price', 3)
    """
    names: list[str] = getattr(element_type, "get_field_names", list)() or []
    if isinstance(field, str):
        position = None if field in names else position_of(field)
        field = field if position is None else position
    if isinstance(field, int) and -len(names) <= field < len(names):
        return str(names[field])
    return field


def key_name(selector: Any) -> Field | None:
    """Return the field that a key selector reads, or None for any other function."""
    field = field_of(selector)
    return None if field is None else field_name(field)


def _is_library_function(function: object) -> bool:
    return str(type(function).__module__).startswith("penstock.")


def _describes_itself(function: object) -> bool:
    """Return whether this is a function of the library with a description. Attributes of user objects may have any meaning."""
    return _is_library_function(function) and hasattr(type(function), "state_meaning")


def unwrapped(function: Any) -> Any:
    """Return the innermost function that has a description, or the user's function inside the library's wrappers."""
    while _is_library_function(function) and not _describes_itself(function):
        inner = getattr(function, "__dict__", {}).get("_function")
        if inner is None:
            break
        function = inner
    return function
