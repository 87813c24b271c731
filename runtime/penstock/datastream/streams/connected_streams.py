"""Two streams for one function: `ConnectedStreams`, and a stream that is connected with a broadcast stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from penstock.common.errors import KeyedStateNotAvailable
from penstock.common.program.user_location import refusal, user_location
from penstock.common.type_info.type_inference import element_type, result_type, shared_element_type, to_type_info
from penstock.datastream import functions as f
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.arguments.row_results import with_row_results
from penstock.graph import operations
from penstock.graph.transformation import Exchange, Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.datastream.streams.keyed_stream import KeyedStream


class ConnectedStreams:
    """Two streams, possibly of different types, that are processed by one function with a method for each stream.

    Without keys, the records of the two streams are not co-located. `key_by` sends records with equal keys to the same subtask, in
    which both sides share the state of the key.

    >>> from penstock.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> numbers, words = env.from_collection([1, 2]), env.from_collection(["a"])
    >>> class ToText(f.CoMapFunction):
    ...     def map1(self, value: int) -> str: return str(value)
    ...     def map2(self, value: str) -> str: return value
    >>> numbers.connect(words).map(ToText()).get_type()
    Types.STRING()
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self.stream1.get_execution_environment()

    def key_by(self, key_selector1: Any, key_selector2: Any = None, key_type: Any = None) -> ConnectedStreams:
        """Partition both streams by key. The two key selectors must return keys of the same type."""
        if key_selector2 is None:
            raise refusal(
                "connect(…).key_by takes a key selector for each of the two streams", "pass the same key selector twice"
            )
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: f.CoMapFunction | tuple[Any, Any] | Any, output_type: Any = None) -> DataStream:
        """Apply `map1` to the first stream and `map2` to the second. The method also accepts a pair of plain functions."""
        return self._both("map", f.CoMapFunction, ("map1", "map2"), operations.CoMap, func, output_type)

    def flat_map(self, func: f.CoFlatMapFunction | tuple[Any, Any] | Any, output_type: Any = None) -> DataStream:
        """Apply `flat_map1` to the first stream and `flat_map2` to the second. The method also accepts a pair of plain functions."""
        methods = ("flat_map1", "flat_map2")
        return self._both("flat_map", f.CoFlatMapFunction, methods, operations.CoFlatMap, func, output_type)

    def process(self, func: f.CoProcessFunction | f.KeyedCoProcessFunction, output_type: Any = None) -> DataStream:
        """Apply `process_element1` and `process_element2`, with timestamps and side outputs. Keyed streams also have state and timers."""
        if isinstance(func, f.KeyedCoProcessFunction) and not self._selectors("process"):
            raise KeyedStateNotAvailable(
                f"{type(func).__name__} is a KeyedCoProcessFunction, but the connected streams have no key",
                remedy="call key_by(key_selector1, key_selector2) after connect",
                location=user_location(),
            )
        methods = ("process_element1", "process_element2")
        checked_function(
            func,
            f.CoProcessFunction,
            f.KeyedCoProcessFunction,
            operation="connect(…).process",
            arguments=None,
            methods=methods,
        )
        declared = to_type_info(output_type)
        inferred = shared_element_type(func, *methods)
        return self._connected(
            "Co-Process", operations.CoProcess, with_row_results(func, declared, ""), declared or inferred, func
        )

    def _both(
        self,
        method: str,
        cls: type,
        methods: tuple[str, str],
        operation: type[operations.TwoInputs],
        func: Any,
        output_type: Any,
    ) -> DataStream:
        declared = to_type_info(output_type)
        infer = result_type if method == "map" else element_type
        functions: Sequence[Any]
        if isinstance(func, tuple) and len(func) == 2:
            functions = func
            for one in functions:
                checked_function(one, operation=f"connect(…).{method}", arguments=1)
            converted: Any = tuple(with_row_results(one, declared, m) for one, m in zip(func, methods, strict=True))
        else:
            checked_function(func, cls, operation=f"connect(…).{method}", arguments=None, methods=methods)
            functions = (func, func)
            converted = with_row_results(func, declared, "")
        first, second = (infer(one, m) for one, m in zip(functions, methods, strict=True))
        inferred = first if first == second else None
        name = "Co-Map" if method == "map" else "Co-Flat Map"
        return self._connected(name, operation, converted, declared or inferred, functions[0])

    def _connected(
        self,
        name: str,
        operation: type[operations.TwoInputs],
        func: Any,
        output_type: TypeInformation | None,
        about: Any,
    ) -> DataStream:
        recorded = operation(func, self._selectors(name))
        inputs = [*self.stream1._edges(0), *self.stream2._edges(1)]
        return self.stream1._transform(name, recorded, output_type, inputs=inputs, about=about)

    def _selectors(self, operation: str) -> tuple[Callable[[Any], Any], ...]:
        """Return both key selectors, or an empty tuple if the streams have no key."""
        keyed = [stream for stream in (self.stream1, self.stream2) if _is_keyed(stream)]
        if len(keyed) == 1:
            which = "first" if keyed[0] is self.stream1 else "second"
            raise refusal(
                f"{operation}: only the {which} of the two connected streams has a key",
                "call key_by(key_selector1, key_selector2) after connect, or broadcast one of the streams",
            )
        if keyed:
            first, second = (stream.get_key_type() for stream in keyed)
            if first is not None and second is not None and first != second:
                raise refusal(
                    f"{operation}: the keys of the connected streams are of different types, {first!r} and {second!r}",
                    "select keys of one type. Only values with equal keys are joined",
                )
        return tuple(stream.key_selector for stream in keyed)


class BroadcastStream:
    """Stream that `broadcast(descriptors)` returns. Each of its records goes to all subtasks, which store it in broadcast map states."""

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        for descriptor in broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise refusal(f"broadcast takes MapStateDescriptors, got {descriptor!r}")
        names = [descriptor.get_name() for descriptor in broadcast_state_descriptors]
        if len(set(names)) < len(names):
            raise refusal(f"broadcast got two descriptors with the same name: {', '.join(names)}")
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)


class BroadcastConnectedStream:
    """Stream that is connected with a broadcast stream."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)

    def process(
        self, func: f.BroadcastProcessFunction | f.KeyedBroadcastProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Apply a function to both streams: `process_element` reads the broadcast state, `process_broadcast_element` writes it.

        A keyed stream needs a `KeyedBroadcastProcessFunction`, which has keyed state and timers.
        """
        stream = self.non_broadcast_stream
        cls = f.KeyedBroadcastProcessFunction if _is_keyed(stream) else f.BroadcastProcessFunction
        if isinstance(func, f.KeyedBroadcastProcessFunction) and cls is f.BroadcastProcessFunction:
            raise KeyedStateNotAvailable(
                f"{type(func).__name__} is a KeyedBroadcastProcessFunction, but the stream has no key",
                remedy="call key_by on the stream before connect",
                location=user_location(),
            )
        methods = ("process_element", "process_broadcast_element")
        checked_function(func, cls, operation="connect(broadcast stream).process", arguments=None, methods=methods)
        declared = to_type_info(output_type)
        converted = with_row_results(func, declared, "")
        broadcast = self.broadcast_stream.input_stream._without_key()
        inputs = [
            *stream._edges(0),
            *broadcast._partitioned(Partitioning(Exchange.BROADCAST), "broadcast")._edges(1),
        ]
        key_selector = stream.key_selector if _is_keyed(stream) else None
        operation = operations.BroadcastProcess(converted, key_selector, tuple(self.broadcast_state_descriptors))
        inferred = shared_element_type(func, *methods)
        name = "Keyed Co-Process-Broadcast" if _is_keyed(stream) else "Co-Process-Broadcast"
        return stream._transform(name, operation, declared or inferred, inputs=inputs, about=func)


def _is_keyed(stream: DataStream) -> TypeGuard[KeyedStream]:
    return stream.is_keyed
