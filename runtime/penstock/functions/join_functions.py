"""Functions over pairs and groups of records of two streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.functions.function import Function

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.functions.output_tag import OutputTag


class JoinFunction(Function):
    """A function with one result for each pair. A third parameter with the name `window` gets the pair's window."""

    @abstractmethod
    def join(self, first: Any, second: Any, /) -> Any: ...


class FlatJoinFunction(Function):
    """A function with any number of results for each pair, yielded or returned as an iterable."""

    @abstractmethod
    def join(self, first: Any, second: Any, /) -> Any: ...


class CoGroupFunction(Function):
    """A function of all records that two streams have for one key in one window. Either stream may have no records."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any], /) -> Any: ...


class ProcessJoinFunction(Function):
    """A function of the pairs of an interval join. Results are yielded or returned as an iterable."""

    class Context(ABC):
        """The context of the pair. All times are event times in ms."""

        @abstractmethod
        def get_left_timestamp(self) -> int: ...

        @abstractmethod
        def get_right_timestamp(self) -> int: ...

        @abstractmethod
        def get_timestamp(self) -> int:
            """Return the later of the two timestamps. It is the timestamp of the results."""

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Send a value to a side output."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context, /) -> Any: ...
