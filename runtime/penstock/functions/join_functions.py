"""Functions over pairs and groups of records of two streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.functions.function import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.functions.output_tag import OutputTag


class JoinFunction(Function):
    """One result for each pair. With a third parameter, called `window`, it gets the pair's window, too."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any: ...


class FlatJoinFunction(Function):
    """Any number of results for each pair, yielded or returned as an iterable."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any: ...


class CoGroupFunction(Function):
    """The records of both streams with one key in one window; either side may be empty."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Any: ...


class ProcessJoinFunction(Function):
    """Pairs of an interval join. Results are yielded or returned as an iterable."""

    class Context(ABC):
        """Of the pair; all times are event times in ms."""

        @abstractmethod
        def get_left_timestamp(self) -> int: ...

        @abstractmethod
        def get_right_timestamp(self) -> int: ...

        @abstractmethod
        def get_timestamp(self) -> int:
            """The later of the two; what the results carry."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Sends a value to a side output."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Any: ...
