"""The connectors of SQL tables. Each one reads a table as a stream, writes a stream into a table, or does both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import TableInfo, refusal
from penstock.sql.tables.options import TableOptions

if TYPE_CHECKING:
    from penstock.datastream import DataStream, StreamExecutionEnvironment
    from penstock.datastream.data_stream import DataStreamSink

Read = Callable[["StreamExecutionEnvironment", TableOptions], "DataStream[SqlRow]"]
"""Creates the stream of a table's rows."""
Write = Callable[["DataStream[Any]", TableOptions, bool], "DataStreamSink"]
"""Writes a stream into a table. The last argument tells whether the stream has changes."""
_SOURCE_OPTIONS, _SINK_OPTIONS = ("scan.", "source."), ("sink.",)
"""Prefixes of options that only a source or only a sink has."""


@dataclass(frozen=True)
class Connector:
    """A connector. `reads` and `writes`: the changelog modes `insert`, `upsert` or `all`; empty if SQL cannot use it in this way.

    Args:
        note: one sentence for the documentation.
    """

    note: str
    read: Read | None = None
    write: Write | None = None
    writes: str = "insert"
    reads: str = "insert"
    is_internal: bool = False

    @property
    def modes(self) -> tuple[str, str]:
        return self.reads if self.read else "", self.writes if self.write else ""


def _read_datagen(env: StreamExecutionEnvironment, options: TableOptions) -> DataStream[SqlRow]:
    from penstock.connectors.simple.datagen import DataGeneratorSource
    from penstock.sql.tables.datagen import GenerateRows

    rows = GenerateRows(options)
    count = options.integer("number-of-rows")
    if rows.count is not None:
        count = rows.count if count is None else min(count, rows.count)
    rate = options.number("rows-per-second", 10_000)
    return env.from_source(DataGeneratorSource(rows, count, rate), None, options.table.name)


def _read_files(env: StreamExecutionEnvironment, options: TableOptions) -> DataStream[SqlRow]:
    from penstock.datastream.connectors.file_system import FileSource, StreamFormat
    from penstock.sql.tables.formats import ReadRows, format_of

    rows = ReadRows(format_of(options))
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), options.required("path"))
    interval = options.milliseconds("source.monitor-interval")
    if interval is not None:
        builder.monitor_continuously(interval)
    return env.from_source(builder.build(), None, options.table.name).flat_map(rows)


def _write_files(stream: DataStream[Any], options: TableOptions, changelog: bool) -> DataStreamSink:
    from penstock.datastream.connectors.file_system import FileSink
    from penstock.sql.tables.formats import format_of

    sink = FileSink.for_row_format(options.required("path"), format_of(options).write).build()
    return stream.sink_to(sink)


def _read_kafka(env: StreamExecutionEnvironment, options: TableOptions) -> DataStream[SqlRow]:
    from penstock.datastream.connectors.kafka import (
        KafkaOffsetResetStrategy,
        KafkaOffsetsInitializer,
        KafkaRecordDeserializationSchema,
        KafkaSource,
    )
    from penstock.sql.tables.formats import RowMessages, format_of

    properties = options.with_prefix("properties.")
    group = properties.get("group.id")
    startup = options.choice(
        "scan.startup.mode", ("group-offsets", "earliest-offset", "latest-offset", "timestamp"), "group-offsets"
    )
    builder = KafkaSource.builder().set_topics(*options.required("topic").split(";"))
    builder.set_properties(properties)
    if startup == "group-offsets":
        if group is None:
            raise options.refusal(
                "'scan.startup.mode' = 'group-offsets' needs a group",
                "add 'properties.group.id', or set 'scan.startup.mode' = 'earliest-offset'",
            )
        strategies = tuple(strategy.name.lower() for strategy in KafkaOffsetResetStrategy)
        strategy = options.choice("properties.auto.offset.reset", strategies, "none").upper()
        builder.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy[strategy]))
    elif startup == "timestamp":
        options.required("scan.startup.timestamp-millis")
        stamp = options.integer("scan.startup.timestamp-millis")
        builder.set_starting_offsets(KafkaOffsetsInitializer.timestamp(stamp or 0))
    else:
        earliest = startup == "earliest-offset"
        builder.set_starting_offsets(
            KafkaOffsetsInitializer.earliest() if earliest else KafkaOffsetsInitializer.latest()
        )
    if options.choice("scan.bounded.mode", ("unbounded", "latest-offset"), "unbounded") == "latest-offset":
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    messages = RowMessages(format_of(options, "value."))
    builder.set_deserializer(KafkaRecordDeserializationSchema.of(messages.row_of))
    return env.from_source(builder.build(), None, options.table.name)


def _write_kafka(stream: DataStream[Any], options: TableOptions, changelog: bool) -> DataStreamSink:
    from penstock.datastream.connectors.base import DeliveryGuarantee
    from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
    from penstock.sql.tables.formats import RowMessages, format_of

    schema = KafkaRecordSerializationSchema.builder().set_topic(options.required("topic"))
    schema.set_value_serialization_schema(RowMessages(format_of(options, "value.")))
    guarantee = options.choice("sink.delivery-guarantee", ("none", "at-least-once", "exactly-once"), "at-least-once")
    builder = KafkaSink.builder().set_record_serializer(schema.build())
    properties = options.with_prefix("properties.")
    servers = properties.pop("bootstrap.servers", None)
    if servers is None:
        raise options.refusal("the option 'properties.bootstrap.servers' is missing", "add it to the WITH clause")
    builder.set_bootstrap_servers(servers)
    for key, value in properties.items():
        if key != "group.id":
            builder.set_property(key, value)
    builder.set_delivery_guarantee(DeliveryGuarantee[guarantee.upper().replace("-", "_")])
    if guarantee == "exactly-once":
        builder.set_transactional_id_prefix(options.required("sink.transactional-id-prefix"))
    return stream.sink_to(builder.build())


def _write_print(stream: DataStream[Any], options: TableOptions, changelog: bool) -> DataStreamSink:
    from penstock.sql.tables.printing import RowText

    text = RowText(options.table.columns, changelog=changelog)
    identifier = options.get("print-identifier", "")
    print = stream.print_to_err if options.flag("standard-error", default=False) else stream.print
    return print(identifier, text=text)


def _write_nothing(stream: DataStream[Any], options: TableOptions, changelog: bool) -> DataStreamSink:
    from penstock.sql.tables.printing import DiscardingSink

    return stream.sink_to(DiscardingSink())


def _read_given(env: StreamExecutionEnvironment, options: TableOptions) -> DataStream[SqlRow]:
    raise options.refusal("the stream of this table belongs to another program", "call from_data_stream() first")


CONNECTORS = {
    "blackhole": Connector("Discards all rows.", write=_write_nothing, writes="all"),
    "datagen": Connector("Generates rows.", read=_read_datagen),
    "filesystem": Connector("Files of lines, in the formats json and csv.", read=_read_files, write=_write_files),
    "kafka": Connector("Topics of Kafka, in the formats json and csv.", read=_read_kafka, write=_write_kafka),
    "print": Connector("Prints each change as a line.", write=_write_print, writes="all"),
    "penstock-changelog": Connector("A stream of changes.", read=_read_given, reads="all", is_internal=True),
    "penstock-stream": Connector("A stream of rows.", read=_read_given, is_internal=True),
    "penstock-collect": Connector("The result of a query.", write=_write_nothing, writes="all", is_internal=True),
}
"""All connectors by Flink's names."""


def connector_of(table: TableInfo, *, reads: bool) -> Connector:
    """Return the connector of a table.

    Raises:
        InvalidJob: Penstock does not have the connector, or it does not read or write.
    """
    name = table.options.get("connector", "")
    found = CONNECTORS.get(name)
    if found is None or (found.read if reads else found.write) is None:
        usable = [n for n, c in CONNECTORS.items() if (c.read if reads else c.write) and not c.is_internal]
        raise refusal(
            f"table {table.name}: SQL cannot {'read' if reads else 'write'} tables of the connector '{name}'",
            f"use one of {', '.join(usable)}",
        )
    return found


def read_table(env: StreamExecutionEnvironment, table: TableInfo) -> DataStream[SqlRow]:
    """Return the stream of the table's rows."""
    options = TableOptions(table)
    read = connector_of(table, reads=True).read
    assert read is not None
    stream = read(env, options)
    options.finish(*_SINK_OPTIONS)
    return stream


def write_table(stream: DataStream[Any], table: TableInfo, *, changelog: bool) -> DataStreamSink:
    """End the stream in the table."""
    options = TableOptions(table)
    write = connector_of(table, reads=False).write
    assert write is not None
    sink = write(stream, options, changelog)
    options.finish(*_SOURCE_OPTIONS)
    return sink
