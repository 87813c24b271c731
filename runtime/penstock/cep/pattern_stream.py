"""`CEP` and `PatternStream`: a pattern on a stream, and the functions of its matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.cep.compiler import compile_pattern
from penstock.cep.functions import (
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    TimedOutPartialMatchHandler,
)
from penstock.cep.matcher import Match
from penstock.cep.pattern import Pattern
from penstock.cep.pattern_function import Comparator, PatternFunction
from penstock.common.program.user_location import refusal
from penstock.common.type_info.type_inference import element_type, result_type, to_type_info
from penstock.datastream.data_stream import DataStream, KeyedStream
from penstock.datastream.output_tag import OutputTag
from penstock.functions.function import bind, has_life_cycle
from penstock.functions.runtime_context import FunctionWrapper, close_function

if TYPE_CHECKING:
    from penstock.cep.automaton import Automaton
    from penstock.functions.function import RuntimeContext


def _one_key(value: Any) -> int:
    return 0


class CEP:
    """The entry point of pattern matching."""

    @staticmethod
    def pattern(input: DataStream, pattern: Pattern, comparator: Comparator | None = None) -> PatternStream:
        """Return the matches of a pattern in a stream. Patterns are found per key. Without keys, one subtask gets all events.

        Args:
            pattern: the last pattern of the sequence.
            comparator: order of events with the same time: a function of two events, negative if the first comes first.

        Raises:
            InvalidJob: an argument has the wrong type, or the pattern is not valid.
        """
        if not isinstance(input, DataStream):
            raise refusal(f"CEP.pattern takes a DataStream, got {input!r}")
        if not isinstance(pattern, Pattern):
            raise refusal(f"CEP.pattern takes a Pattern, got {pattern!r}", "start it with Pattern.begin(name)")
        if comparator is not None and not callable(comparator):
            raise refusal(f"the comparator of CEP.pattern is not a function of two events: {comparator!r}")
        return PatternStream(input, compile_pattern(pattern), comparator)


@dataclass(frozen=True)
class PatternStream:
    """The matches of a pattern. `process`, `select` and `flat_select` turn them into a stream."""

    input_stream: DataStream
    automaton: Automaton
    comparator: Comparator | None = None
    is_in_processing_time: bool = False
    late: OutputTag | None = None

    def in_processing_time(self) -> PatternStream:
        """Take events in the order of their arrival. `within` then counts processing time."""
        return replace(self, is_in_processing_time=True)

    def in_event_time(self) -> PatternStream:
        """Take events in the order of their timestamps when the watermark reaches them. This is the default."""
        return replace(self, is_in_processing_time=False)

    def side_output_late_data(self, late_data_output_tag: OutputTag) -> PatternStream:
        """Send late events, whose timestamps the watermark has passed, to a side output instead of dropping them."""
        return replace(self, late=_checked_tag(late_data_output_tag, "side_output_late_data"))

    def process(self, pattern_process_function: PatternProcessFunction, output_type: Any = None) -> DataStream:
        """Apply a function to each match, and if it is a `TimedOutPartialMatchHandler` to each partial match that timed out.

        Args:
            output_type: type of the results. Default: the annotation of `process_match`.
        """
        function = pattern_process_function
        if not isinstance(function, PatternProcessFunction):
            raise refusal(
                f"process takes a PatternProcessFunction, got {function!r}",
                "pass plain functions to select() or flat_select()",
            )
        declared = to_type_info(output_type) or element_type(function, "process_match")
        return self._apply(function, declared)

    def select(
        self,
        pattern_select_function: PatternSelectFunction | Callable[[Match], Any],
        output_type: Any = None,
        *,
        timed_out_tag: OutputTag | None = None,
        timeout_function: PatternTimeoutFunction | Callable[[Match, int], Any] | None = None,
    ) -> DataStream:
        """Apply a function that returns one result for each match.

        Args:
            output_type: type of the results. Default: the annotation of the function.
            timed_out_tag: side output of the partial matches that timed out.
            timeout_function: function of such a partial match and the time at which it timed out (ms). Its result goes to the side output.
        """
        function = _called(pattern_select_function, "select", PatternSelectFunction)
        timeout = _called(timeout_function, "timeout", PatternTimeoutFunction) if timeout_function is not None else None
        declared = to_type_info(output_type) or result_type(function, "select")
        return self._apply(_selected(function, timeout, timed_out_tag, is_flat=False), declared)

    def flat_select(
        self,
        pattern_flat_select_function: PatternFlatSelectFunction | Callable[[Match], Any],
        output_type: Any = None,
        *,
        timed_out_tag: OutputTag | None = None,
        timeout_function: PatternFlatTimeoutFunction | Callable[[Match, int], Any] | None = None,
    ) -> DataStream:
        """Apply a function that yields results for each match. The arguments are those of `select`, and the timeout function yields, too."""
        function = _called(pattern_flat_select_function, "flat_select", PatternFlatSelectFunction)
        timeout = (
            _called(timeout_function, "timeout", PatternFlatTimeoutFunction) if timeout_function is not None else None
        )
        declared = to_type_info(output_type) or element_type(function, "flat_select")
        return self._apply(_selected(function, timeout, timed_out_tag, is_flat=True), declared)

    def _apply(self, function: PatternProcessFunction, declared: Any) -> DataStream:
        operator = PatternFunction(
            self.automaton,
            function,
            event_type=self.input_stream.get_type(),
            in_processing_time=self.is_in_processing_time,
            comparator=self.comparator,
            late=self.late,
        )
        keyed = self.input_stream
        if isinstance(keyed, KeyedStream):
            return keyed.process(operator, declared).name("Pattern")
        return keyed.key_by(_one_key).process(operator, declared).name("Pattern").force_non_parallel()


def _checked_tag(tag: Any, method: str) -> OutputTag:
    if not isinstance(tag, OutputTag):
        raise refusal(f"{method} takes an OutputTag, got {tag!r}")
    return tag


def _called(function: Any, method: str, kind: type) -> Any:
    if isinstance(function, type) or not (isinstance(function, kind) or callable(function)):
        raise refusal(
            f"{method} takes a function or a {kind.__name__}, got {function!r}", "pass a function or an instance"
        )
    return function


def _selected(function: Any, timeout: Any, tag: OutputTag | None, *, is_flat: bool) -> PatternProcessFunction:
    if (timeout is None) != (tag is None):
        raise refusal("timed_out_tag and timeout_function belong together", "pass both or none")
    if timeout is None:
        return _Select(function, is_flat=is_flat)
    return _SelectWithTimeout(function, timeout, _checked_tag(tag, "timed_out_tag"), is_flat=is_flat)


class _Select(FunctionWrapper, PatternProcessFunction):
    """The function of `select` or `flat_select`."""

    def __init__(self, function: Any, *, is_flat: bool) -> None:
        super().__init__(function)
        self._is_flat = is_flat
        self._select = bind(function, "flat_select" if is_flat else "select")

    def process_match(self, match: Match, ctx: PatternProcessFunction.Context) -> Any:
        found = self._select(match)
        return found if self._is_flat else [found]


class _SelectWithTimeout(_Select, TimedOutPartialMatchHandler):
    def __init__(self, function: Any, timeout: Any, tag: OutputTag, *, is_flat: bool) -> None:
        super().__init__(function, is_flat=is_flat)
        self._timeout_function = timeout
        self._timeout = bind(timeout, "timeout")
        self._tag = tag

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        if has_life_cycle(self._timeout_function):
            self._timeout_function.open(runtime_context)

    def close(self) -> None:
        super().close()
        close_function(self._timeout_function)

    def process_timed_out_match(self, match: Match, ctx: PatternProcessFunction.Context) -> Any:
        found = self._timeout(match, ctx.timestamp())
        return [(self._tag, value) for value in (found or () if self._is_flat else [found])]
