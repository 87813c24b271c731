"""The methods of the execution environment that create streams from sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload

from penstock.common.program.user_location import refusal, user_location
from penstock.common.type_info.type_inference import to_type_info
from penstock.datastream import functions as f
from penstock.datastream.data_stream import DataStream
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.data_stream import _checked_strategy
from penstock.functions.type_variables import T
from penstock.graph import operations
from penstock.graph.transformation import Input, Transformation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.connectors.core.source import Source
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class SourceMethods:
    """Base of `StreamExecutionEnvironment`."""

    def from_source(
        self, source: Source, watermark_strategy: WatermarkStrategy | None, source_name: str, type_info: Any = None
    ) -> DataStream:
        """Return the stream of a source of `penstock.connectors`.

        Args:
            watermark_strategy: strategy that is applied to each split of the source separately. None means no event time.
            type_info: type of the records. Default: the type that the source declares.
        """
        from penstock.connectors.core.source import Source as SourceBase

        if not isinstance(source, SourceBase):
            raise refusal(f"from_source takes a Source, got {source!r}", "pass source functions to add_source()")
        strategy = None if watermark_strategy is None else _checked_strategy(watermark_strategy)
        transformation = Transformation(
            source_name,
            operations.Source(source, strategy),
            output_type=to_type_info(type_info) or to_type_info(source.produced_type()),
            description=f"Source: {source_name}",
            user_location=user_location(),
        )
        environment = cast("StreamExecutionEnvironment", self)
        return DataStream(environment, [Input(transformation)], transformation.output_type, transformation)

    @overload
    def from_collection(self, collection: Iterable[T]) -> DataStream[T]: ...
    @overload
    def from_collection(self, collection: Iterable[Any], type_info: Any) -> DataStream: ...
    def from_collection(self, collection: Iterable[Any], type_info: Any = None) -> DataStream:
        """Return a stream of the values of a collection, in order. The program contains the values, so use it for examples and tests.

        Args:
            type_info: type of the values. The method checks the values against this type. If the type declares Rows or tuples, the values
                are converted to these.

        Raises:
            InvalidJob: the collection is empty and no type is given, or a value does not have the type.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([("KJFK", 21.5)]).get_type()
        TupleTypeInfo([Types.STRING(), Types.DOUBLE()])
        """
        from penstock.connectors.simple.collection import CollectionSource

        if isinstance(collection, str | bytes) or not hasattr(collection, "__iter__"):
            raise refusal(f"from_collection takes a collection of values, got {collection!r}", "write [value]")
        values = list(collection)
        declared = to_type_info(type_info)
        if not values and declared is None:
            raise refusal("from_collection got an empty collection and no type", "give type_info")
        source = CollectionSource(values, declared)
        return self.from_source(source, None, "Collection Source", declared).force_non_parallel()

    def add_source(
        self, source_func: f.SourceFunction | Source | Any, source_name: str = "Custom Source", type_info: Any = None
    ) -> DataStream:
        """Return the stream of a source function. The method also accepts a `Source`."""
        from penstock.connectors.core.source import Source as SourceBase

        if isinstance(source_func, SourceBase):
            return self.from_source(source_func, None, source_name, type_info)
        from penstock.connectors.core.function import FunctionSource

        checked_function(
            source_func, f.SourceFunction, operation="add_source", arguments=None, methods=("run", "cancel")
        )
        declared = to_type_info(type_info)
        stream = self.from_source(FunctionSource(source_func, type_info=declared), None, source_name, declared)
        return stream if isinstance(source_func, f.ParallelSourceFunction) else stream.force_non_parallel()

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream[str]:
        """Return a stream of the lines that a server sends (`nc -lk 9999`).

        Each line is read at most once, because a socket cannot be read again after a failure.

        Args:
            max_retry: number of reconnects when the server is unreachable or closes the connection. -1 means no limit. The job runs on
                while the source reconnects.
        """
        from penstock.connectors.simple.socket import SocketTextSource

        return self.add_source(SocketTextSource(hostname, port, delimiter, max_retry), "Socket Stream", str)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream[str]:
        """Return a stream of the lines of a file, or of all files of a directory. Each file is read once. The path is any URL that fsspec
        supports.
        """
        from penstock.datastream.connectors.file_system import FileSource, StreamFormat

        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path).build()
        return self.from_source(source, None, f"Read Text File {file_path}", str)

    def create_input(self, input_format: Any, type_info: Any = None) -> DataStream:
        """Return the stream of an input format of `penstock.datastream.formats`."""
        from penstock.connectors.core.source import Source as SourceBase

        if not isinstance(input_format, SourceBase):
            raise refusal(
                f"create_input takes an input format of penstock.datastream.formats, got {input_format!r}",
                "read files with FileSource.for_bulk_file_format",
            )
        return self.from_source(input_format, None, type(input_format).__name__, type_info)

    def from_spark(
        self,
        df_factory: Callable[[Any], Any],
        source_name: str = "Spark Source",
        type_info: Any = None,
        *,
        watermark_strategy: WatermarkStrategy | None = None,
        bounded: bool = False,
    ) -> DataStream:
        """Return a stream of the rows of a Spark DataFrame, as Rows. The DataFrame can use any batch or Structured Streaming source.

        Each row is processed exactly once. The job runs on the batched runner. `docs/connectors.md` describes how the DataFrame and the
        job share the cluster.

        Args:
            df_factory: function that is called with the SparkSession in the JobManager and returns the DataFrame. A streaming DataFrame
                may select, filter, and join with tables. It must not be stateful.
            watermark_strategy: strategy that is applied to each part of each micro-batch separately. If the event-time clock must continue
                over all batches, use `assign_timestamps_and_watermarks` instead.
            bounded: whether a streaming DataFrame ends at the data that exists at the start. A batch DataFrame always ends.
        """
        from penstock.connectors.spark import SparkSource

        checked_function(df_factory, operation="from_spark", arguments=1)
        source = SparkSource(df_factory, bounded=bounded)
        return self.from_source(source, watermark_strategy, source_name, type_info)
