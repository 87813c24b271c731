"""The ends of a stream: sinks, and the execution of the program."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, overload

from penstock.common.program.user_location import refusal, user_location
from penstock.datastream import functions as f
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.recorded_stream import RecordedStream
from penstock.functions.function import name_of
from penstock.graph import operations
from penstock.graph.transformation import Transformation

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.connectors.core.sink import Sink
    from penstock.datastream.streams.closeable_iterator import CloseableIterator
    from penstock.datastream.streams.data_stream_sink import DataStreamSink


class StreamEnds(RecordedStream):
    """Base class of `DataStream` with the methods that end a stream."""

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the stream to a sink of `penstock.connectors`."""
        from penstock.connectors.core.sink import Sink as SinkBase

        if not isinstance(sink, SinkBase):
            raise refusal(f"sink_to takes a Sink, got {sink!r}", "pass functions to add_sink()")
        return self._sink(f"Sink: {type(sink).__name__.removesuffix('Sink') or 'Writer'}", sink)

    def add_sink(self, sink_func: f.SinkFunction | Callable[[Any], Any] | Any) -> DataStreamSink:
        """Call the function for every record. After a failure, records may be repeated. The method also accepts a `Sink`."""
        from penstock.connectors.core.sink import Sink as SinkBase

        if isinstance(sink_func, SinkBase):
            return self.sink_to(sink_func)
        from penstock.connectors.core.function import FunctionSink

        checked_function(sink_func, f.SinkFunction, operation="add_sink", arguments=1, methods=("invoke",))
        return self._sink("Sink: Unnamed", FunctionSink(sink_func), about=sink_func)

    def print(self, sink_identifier: str | None = None, *, text: Callable[[Any], str] | None = None) -> DataStreamSink:
        """Print every record. If the stream has several subtasks, each line starts with the number of the subtask.

        The sink has the parallelism of the stream, so the records of a subtask keep their order.

        Args:
            sink_identifier: prefix of the lines, to distinguish streams.
            text: function that formats a record, for example `str`. The default depends on the type of the stream. For a declared
                type it is Flink's format: `(a,1)`, `true`, and `+I[a,True]` for a ROW, as PyFlink prints it. Otherwise it is Python's
                `str`.
        """
        from penstock.connectors.simple.print import PrintSink

        return self._sink("Print to Std. Out", PrintSink(sink_identifier or "", text=text), beside=True)

    def print_to_err(
        self, sink_identifier: str | None = None, *, text: Callable[[Any], str] | None = None
    ) -> DataStreamSink:
        """Print every record to the standard error of the subtask's process. The log of the TaskManager contains this output.

        Args:
            sink_identifier: prefix of the lines, to distinguish streams.
            text: function that formats a record, as for `print`.
        """
        from penstock.connectors.simple.print import PrintSink

        sink = PrintSink(sink_identifier or "", to_stderr=True, text=text)
        return self._sink("Print to Std. Err", sink, beside=True)

    def to_spark(self, function: Callable[..., Any]) -> DataStreamSink:
        """Pass the rows to Spark: call `function(data_frame, checkpoint_id)` in the JobManager for each completed checkpoint with rows.

        After a failure, the function may be called again with the same id and the same rows.
        """
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
        """Run the job and return the records of the stream.

        Args:
            limit: number of records to wait for and to return as a list. None means to return an iterator over all records, which must be
                closed.

        Returns:
            A `CloseableIterator`, or a list if a limit is given.
        """
        from penstock.connectors.simple.collect import CollectSink
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
        """Return the stream whose records `execute_and_collect` returns."""
        return self

    def _sink(self, name: str, sink: Sink, about: Any = None, *, beside: bool = False) -> DataStreamSink:
        """Add a sink.

        Args:
            beside: whether the sink has the parallelism of the operator that it reads. No record then moves to another subtask.
        """
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
            transformation.inherit_parallelism()
        self._env._add_sink(transformation)
        return DataStreamSink(transformation)
