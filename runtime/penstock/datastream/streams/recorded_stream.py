"""The representation of a stream: edges from the operators that created it, and a method that adds the next operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.common.program.user_location import refusal, user_location
from penstock.datastream.streams.operator_settings import OperatorSettings
from penstock.functions.function import name_of
from penstock.graph.transformation import Input, Transformation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.graph.operations import Operation


class RecordedStream(OperatorSettings, ABC):
    """Base class of `DataStream`, which implements `_new` to create streams.

    Args:
        inputs: edges of every operator that reads the stream.
        transformation: transformation whose output the stream is, or None for a view such as `union`.
        view: name of the method that created the stream. Empty if an operator created the stream.
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        inputs: Sequence[Input],
        type_info: TypeInformation | None,
        transformation: Transformation | None = None,
        view: str = "",
    ) -> None:
        self._env = env
        self._inputs = list(inputs)
        self._type_info = type_info
        self._transformation = transformation
        self._view = view

    def get_type(self) -> TypeInformation | None:
        """Return the type of the records, or None if it is unknown. Records of an unknown type are serialized by their Python class."""
        return self._type_info

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._env

    def _transform(
        self,
        name: str,
        operation: Operation,
        output_type: TypeInformation | None,
        *,
        inputs: Sequence[Input] | None = None,
        non_parallel: bool = False,
        about: Any = None,
    ) -> DataStream:
        """Add an operator that reads this stream, or the given inputs, and return its stream."""
        if operation.is_keyed:
            operation = replace(operation, key_type=self._stored_key_type())
        transformation = Transformation(
            name,
            operation,
            inputs=list(self._inputs if inputs is None else inputs),
            output_type=output_type,
            description=f"{name}: {name_of(about)}" if about is not None else name,
            user_location=user_location(),
            is_stateful=operation.is_keyed,
            parallelism=1 if non_parallel else None,
            non_parallel=non_parallel,
        )
        return self._new([Input(transformation)], output_type, transformation)

    def _edges(self, index: int) -> list[Input]:
        """Return the edges over which an operator reads this stream as its input number `index`."""
        return [replace(edge, index=index) for edge in self._inputs]

    def _state_key(self, func: Any) -> Callable[[Any], Any] | None:
        """Return the key selector for an operator whose function may use keyed state."""
        return None

    def _stored_key_type(self) -> TypeInformation | None:
        """Return the type of the keys if the state backend needs it."""
        return None

    def _check_same_environment(self, other: Any, operation: str) -> None:
        if not isinstance(other, RecordedStream):
            raise refusal(f"{operation} takes a stream, got {other!r}")
        if other._env is not self._env:
            raise refusal(f"{operation} got a stream of another environment", "use one environment for a job")

    @abstractmethod
    def _new(
        self,
        inputs: Sequence[Input],
        type_info: TypeInformation | None,
        transformation: Transformation | None = None,
        view: str = "",
    ) -> DataStream:
        """Return a stream of these edges."""
