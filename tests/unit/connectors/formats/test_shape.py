from __future__ import annotations

import dataclasses
import datetime
import decimal
import pickle
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import Types
from penstock.connectors.core.function import FunctionSink
from penstock.connectors.file.sink.bucket import BucketAssigner
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.formats.arrow_types import annotation_of, arrow_type
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.connectors.formats.csv import CsvFormat
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.connectors.formats.shape import RecordShape
from penstock.connectors.simple.collection import CollectionSource
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.connectors.simple.print import PrintSink


class Inner(NamedTuple):
    x: int


@dataclasses.dataclass
class Everything:
    text: str
    data: bytes
    flag: bool | None
    whole: int
    real: float
    exact: decimal.Decimal
    day: datetime.date
    time: datetime.time
    moment: datetime.datetime
    many: list[int | None]
    by_name: dict[str, float]
    inner: Inner
    inners: tuple[Inner, ...]


@dataclasses.dataclass
class Simple:
    text: str
    many: list[int | None]


def test_fields_of_every_type_become_columns_and_back() -> None:
    shape = RecordShape.of(Everything)
    value = Everything(
        "a", b"b", None, 1, 1.5, decimal.Decimal("1.25"), datetime.date(2013, 1, 1), datetime.time(1, 2), datetime.datetime(2013, 1, 1, 5),
        [1, None], {"x": 1.0}, Inner(1), (Inner(2),),
    )  # fmt: skip
    columns = pa.RecordBatch.from_pylist([{**vars(value), "inner": {"x": 1}, "inners": [{"x": 2}]}], shape.schema)
    assert shape.maker(columns) == [value]
    assert [annotation_of(field.type) for field in shape.schema][:11] == [
        str, bytes, bool, int, float, decimal.Decimal, datetime.date, datetime.time, datetime.datetime,
        list[int], dict[str, float],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (Types.BYTE(), pa.int8()),
        (Types.SHORT(), pa.int16()),
        (Types.INT(), pa.int32()),
        (Types.FLOAT(), pa.float32()),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary()),
        (Types.LIST(Types.BOOLEAN()), pa.list_(pa.bool_())),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), pa.map_(pa.string(), pa.float64())),
        (Types.ROW_NAMED(["a"], [Types.STRING()]), pa.struct([("a", pa.string())])),
        (Types.SQL_DATE(), pa.date32()),
        (Types.SQL_TIMESTAMP(), pa.timestamp("us")),
        (pa.large_string(), pa.large_string()),
    ],
)
def test_type_information_has_arrow_types(declared: Any, expected: pa.DataType) -> None:
    assert arrow_type(declared, "f") == expected


@pytest.mark.parametrize("declared", [Any, int | str, object, Types.BIG_INT(), Types.TUPLE([Types.INT()]), set[int]])
def test_a_type_without_columns_is_named(declared: Any) -> None:
    with pytest.raises(InvalidJob, match="field 'f'"):
        RecordShape.of({"f": declared}).schema  # noqa: B018


def test_an_arrow_schema_is_not_changed() -> None:
    schema = pa.schema([("n", pa.int32()), ("t", pa.large_string())])
    for record in (None, "tuple"):
        shape = pickle.loads(pickle.dumps(RecordShape.of(schema, record)))
        assert shape.schema == schema
    assert ParquetWriterFactory(schema).shape.schema == schema


def test_a_shape_needs_fields_and_a_known_form() -> None:
    with pytest.raises(InvalidJob):
        RecordShape.of({})
    with pytest.raises(InvalidJob, match="'list'"):
        RecordShape.of({"a": int}, "list")


def test_connectors_are_picklable() -> None:
    sinks = [
        FileSink.for_row_format("/x", JsonLinesEncoder(["a"])).with_compression("zstd").build(),
        FileSink.for_row_format("/x", lambda value: value).with_bucket_assigner(lambda value: "b").build(),
        FileSink.for_bulk_format("/x", ParquetWriterFactory({"a": int}))
        .with_bucket_assigner(BucketAssigner.date_time_bucket_assigner(timezone_id="Europe/Paris"))
        .build(),
        PrintSink("p"),
        FunctionSink(lambda value: None),
    ]
    sources = [
        FileSource(format, ("/x",))
        for format in (JsonLinesFormat(Simple), JsonLinesFormat(), CsvFormat({"a": int}), ParquetFormat({"a": int}))
    ]
    for connector in (*sinks, *sources, CollectionSource([1]), DataGeneratorSource(lambda index: index)):
        again = cloudpickle.loads(cloudpickle.dumps(connector))
        assert type(again) is type(connector)
