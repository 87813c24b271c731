"""`IterativeStream`: the start of an iteration, to which results can be sent back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.program.user_location import refusal
from penstock.connectors.simple.feedback import FeedbackSink, FeedbackSource, Loop
from penstock.datastream.streams.data_stream import DataStream
from penstock.functions.type_variables import T
from penstock.graph.program import upstream_first
from penstock.graph.transformation import Input

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.streams.data_stream_sink import DataStreamSink


class IterativeStream(DataStream[T]):
    """Stream of an iteration: the records of the input, and the records that `close_with` sends back.

    `name` and `uid` set the name and uid of the feedback source. Checkpoints contain the position of this source.

    >>> from penstock.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> def halved(number: int) -> int:
    ...     return number // 2
    >>> iteration = env.from_collection([100, 3]).iterate().uid("halving")
    >>> halves = iteration.map(halved)
    >>> _ = iteration.close_with(halves.filter(lambda number: number > 10))
    >>> small = halves.filter(lambda number: number <= 10)
    """

    _loop: Loop

    @classmethod
    def _of(cls, stream: DataStream[T]) -> IterativeStream[T]:
        unkeyed = stream._without_key()
        loop = Loop("", stream.get_type())
        head = unkeyed._env.from_source(FeedbackSource(loop), None, "Feedback", stream.get_type())._transformation
        assert head is not None
        loop.id = f"feedback-{head.id}"
        found = cls(unkeyed._env, [*unkeyed._inputs, Input(head)], stream.get_type(), head)
        found._loop = loop
        return found

    def close_with(self, feedback_stream: DataStream[T]) -> DataStreamSink:
        """Send the records of a stream back to the start of the iteration.

        Raises:
            InvalidJob: the stream does not come from this iteration, it has another type, or the iteration is already closed.
        """
        head = self._own("close_with")
        if not isinstance(feedback_stream, DataStream):
            raise refusal(f"close_with takes a stream, got {feedback_stream!r}")
        if self._loop.is_closed:
            raise refusal("this iteration was closed before", "pass the union of the feedback streams to close_with")
        self._check_same_environment(feedback_stream, "close_with")
        if head not in upstream_first(edge.upstream for edge in feedback_stream._inputs):
            raise refusal(
                "close_with got a stream that does not come from this iteration",
                "derive the stream from the result of iterate(). Add other streams with a union before iterate()",
            )
        feedback_type = feedback_stream.get_type()
        if self._type_info is not None and feedback_type is not None and not _fit(self._type_info, feedback_type):
            raise refusal(
                f"an iteration over {self._type_info!r} cannot be closed with {feedback_type!r}",
                "map the feedback stream to the type of the stream on which iterate() was called",
            )
        self._loop.type_info = self._type_info or feedback_type
        self._loop.is_closed = True
        return feedback_stream._without_key()._sink("Sink: Feedback", FeedbackSink(self._loop), beside=True)


def _fit(type_info: TypeInformation, other: TypeInformation) -> bool:
    """Return whether the types match. Inferred types match if their Python types are equal, because inferred types declare nothing else."""
    if type_info.is_inferred or other.is_inferred:
        return bool(type_info.python_type == other.python_type)
    return type_info == other


DataStream._iterative_stream = IterativeStream
