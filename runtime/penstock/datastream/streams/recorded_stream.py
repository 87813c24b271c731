"""What a stream is underneath: edges from the operators that made it, and how the next operator is recorded."""

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
    """Base of `DataStream`, which alone makes streams of it.

    Args:
        inputs: edges that whoever reads the stream has.
        transformation: of the operator the stream is the output of; None for a view such as `union`.
        view: what made the stream, if no operator did.
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
        """Of the values; None = unknown, they are then encoded by what they are."""
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
        """The stream of a new operator that reads this stream, or the inputs given."""
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
        """How an operator reads this stream as its input of that number."""
        return [replace(edge, index=index) for edge in self._inputs]

    def _state_key(self, func: Any) -> Callable[[Any], Any] | None:
        """The key selector an operator needs whose function object may use keyed state."""
        return None

    def _stored_key_type(self) -> TypeInformation | None:
        """Type of the keys where the state backend needs to know it."""
        return None

    def _check_same_environment(self, other: Any, operation: str) -> None:
        if not isinstance(other, RecordedStream):
            raise refusal(f"{operation} takes a stream, got {other!r}")
        if other._env is not self._env:
            raise refusal(f"{operation} was given a stream of another environment", "use one environment for a job")

    @abstractmethod
    def _new(
        self,
        inputs: Sequence[Input],
        type_info: TypeInformation | None,
        transformation: Transformation | None = None,
        view: str = "",
    ) -> DataStream:
        """A stream of these edges."""
