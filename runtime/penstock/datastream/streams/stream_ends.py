"""Where a stream ends: sinks, and the program itself."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, overload

from penstock.common.program.user_location import refusal, user_location
from penstock.datastream import functions as f
from penstock.datastream.streams.checks import checked_function
from penstock.datastream.streams.recorded_stream import RecordedStream
from penstock.functions.function import name_of
from penstock.graph import operations
from penstock.graph.transformation import Transformation

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.sink import Sink
    from penstock.datastream.streams.closeable_iterator import CloseableIterator
    from penstock.datastream.streams.data_stream_sink import DataStreamSink


class StreamEnds(RecordedStream):
    """The part of `DataStream` that ends it."""

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Writes the stream to a sink of `penstock.connectors`."""
        from penstock.connectors.sink import Sink as SinkBase

        if not isinstance(sink, SinkBase):
            raise refusal(f"sink_to takes a Sink, got {sink!r}", "pass functions to add_sink()")
        return self._sink(f"Sink: {type(sink).__name__.removesuffix('Sink') or 'Writer'}", sink)

    def add_sink(self, sink_func: f.SinkFunction | Callable[[Any], Any] | Any) -> DataStreamSink:
        """Calls the function for every value; after a failure values may come again. A `Sink` is taken as well."""
        from penstock.connectors.sink import Sink as SinkBase

        if isinstance(sink_func, SinkBase):
            return self.sink_to(sink_func)
        from penstock.connectors.function import FunctionSink

        checked_function(sink_func, f.SinkFunction, operation="add_sink", arguments=1, methods=("invoke",))
        return self._sink("Sink: Unnamed", FunctionSink(sink_func), about=sink_func)

    def print(self, sink_identifier: str | None = None, *, text: Callable[[Any], str] | None = None) -> DataStreamSink:
        """Prints every value; with more than one subtask the line begins with the subtask's number.

        It runs with the parallelism of the stream, so that values of one subtask stay in order.

        Args:
            sink_identifier: put before the values, to tell streams apart.
            text: what writes a value, for example `str`. Unless given, Flink's text where the stream's type was declared:
                `(a,1)`, `true`, of a ROW `+I[a,True]` as PyFlink's `print`; and Python's `str` where it was not.
        """
        from penstock.connectors.print import PrintSink

        return self._sink("Print to Std. Out", PrintSink(sink_identifier or "", text=text), beside=True)

    def print_to_err(
        self, sink_identifier: str | None = None, *, text: Callable[[Any], str] | None = None
    ) -> DataStreamSink:
        """As `print`, to the standard error of the process that the subtask runs in, which is in the TaskManager's log.

        Args:
            sink_identifier: put before the values, to tell streams apart.
            text: what writes a value, as for `print`.
        """
        from penstock.connectors.print import PrintSink

        sink = PrintSink(sink_identifier or "", to_stderr=True, text=text)
        return self._sink("Print to Std. Err", sink, beside=True)

    def to_spark(self, function: Callable[..., Any]) -> DataStreamSink:
        """Hands the rows to Spark: `function(data_frame, checkpoint_id)` is called in the JobManager for each completed
        checkpoint that has rows. After a failure it may be called again with the same id and the same rows."""
        from penstock.connectors.spark import SparkSink

        checked_function(function, operation="to_spark", arguments=2)
        return self._sink("Sink: Spark", SparkSink(function), about=function)

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, limit: None = None) -> CloseableIterator: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Any]: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Runs the job and gives the stream's values.

        Args:
            limit: how many values to wait for, given as a list; None: an iterator over all of them, to be closed.

        Returns:
            A `CloseableIterator`; a list if there is a limit.
        """
        from penstock.connectors.collect import CollectSink
        from penstock.datastream.streams.closeable_iterator import CloseableIterator

        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise refusal(f"limit must be a positive number, got {limit!r}")
        self._collected()._sink("Collect Sink", CollectSink(f"collect-{uuid.uuid4().hex}"), beside=True)
        values = CloseableIterator(self._env._collect(job_execution_name, limit))
        if limit is None:
            return values
        with values:
            return [value for value, _ in zip(values, range(limit), strict=False)]

    def _collected(self) -> StreamEnds:
        """The stream whose values `execute_and_collect` gives."""
        return self

    def _sink(self, name: str, sink: Sink, about: Any = None, *, beside: bool = False) -> DataStreamSink:
        """`beside`: with the parallelism of the operator that it reads, so that no record changes the subtask."""
        from penstock.datastream.streams.data_stream_sink import DataStreamSink

        if self._type_info is not None and not self._type_info.is_inferred:
            sink = sink.with_input_type(self._type_info)
        transformation = Transformation(
            name,
            operations.Sink(sink),
            inputs=list(self._inputs),
            output_type=self._type_info,
            description=f"{name}: {name_of(about)}" if about is not None else name,
            user_location=user_location(),
        )
        if beside:
            transformation.stand_beside_input()
        self._env._add_sink(transformation)
        return DataStreamSink(transformation)
