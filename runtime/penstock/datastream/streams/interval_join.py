"""The interval join: pairs of records with equal keys and close event times.

A record of the first stream at time t is joined with records of the second stream with times in [t + lower, t + upper]. A result
has the later of the two times. Records are kept until the watermark shows that no partner can follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import element_type, to_type_info
from penstock.datastream import functions as f
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.arguments.row_results import with_row_results
from penstock.graph import operations

if TYPE_CHECKING:
    from penstock.datastream.output_tag import OutputTag
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.datastream.streams.keyed_stream import KeyedStream


class IntervalJoin:
    """Interval join without bounds, which `interval_join` returns."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        types = (left.get_key_type(), right.get_key_type())
        if None not in types and types[0] != types[1]:
            raise refusal(
                f"interval_join: the keys of the two streams are of different types, {types[0]!r} and {types[1]!r}",
                "select keys of one type. Only values with equal keys are joined",
            )
        self._left = left
        self._right = right

    def between(self, lower_bound: TimeLike, upper_bound: TimeLike) -> IntervalJoined:
        """Set the bounds of the time of the second record minus the time of the first record. Both bounds are inclusive and may be negative.

        >>> from datetime import timedelta
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> clicks, views = env.from_collection([("u", "click")]), env.from_collection([("u", "view")])
        >>> class Seen(f.ProcessJoinFunction):
        ...     def process_element(self, left, right, ctx):
        ...         yield left[1], right[1], ctx.get_timestamp()
        >>> joined = clicks.key_by(0).interval_join(views.key_by(0)).between(timedelta(minutes=-10), timedelta(0))
        >>> joined.process(Seen()).get_name()
        'Interval Join'
        """
        lower, upper = as_millis(lower_bound, "lower bound"), as_millis(upper_bound, "upper bound")
        if lower > upper:
            raise refusal(f"the lower bound {lower_bound!r} of an interval join is above the upper {upper_bound!r}")
        return IntervalJoined(self._left, self._right, lower, upper)


class IntervalJoined:
    """Interval join with its bounds, in ms."""

    def __init__(self, left: KeyedStream, right: KeyedStream, lower_ms: int, upper_ms: int) -> None:
        self._left = left
        self._right = right
        self._lower_ms = lower_ms
        self._upper_ms = upper_ms
        self._late_tags: list[OutputTag | None] = [None, None]

    def lower_bound_exclusive(self) -> Self:
        self._lower_ms += 1
        return self

    def upper_bound_exclusive(self) -> Self:
        self._upper_ms -= 1
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the first stream to this side output. By default, late records are dropped."""
        self._late_tags[0] = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the second stream to this side output. By default, late records are dropped."""
        self._late_tags[1] = output_tag
        return self

    def process(self, process_join_function: Any, output_type: Any = None) -> DataStream:
        """Apply a function to each pair of records and return the stream of its results.

        Args:
            process_join_function: a `ProcessJoinFunction`, or a callable with the arguments (left, right, context) that returns an iterable
                of results.
        """
        checked_function(
            process_join_function,
            f.ProcessJoinFunction,
            operation="interval_join",
            arguments=3,
            methods=("process_element",),
        )
        declared = to_type_info(output_type)
        left, right = self._left, self._right
        operation = operations.IntervalJoin(
            with_row_results(process_join_function, declared, "process_element"),
            (left.key_selector, right.key_selector),
            lower_ms=self._lower_ms,
            upper_ms=self._upper_ms,
            element_types=(left.get_type(), right.get_type()),
            late_tags=(self._late_tags[0], self._late_tags[1]),
        )
        result = left._transform(
            "Interval Join",
            operation,
            declared or element_type(process_join_function, "process_element"),
            inputs=[*left._edges(0), *right._edges(1)],
            about=process_join_function,
        )
        for tag, stream in zip(self._late_tags, (left, right), strict=True):
            if tag is not None:
                result._own("interval_join").side_types[tag.tag_id] = tag.type_info or stream.get_type()
        return result
