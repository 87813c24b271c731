"""Values that a format or type cannot represent are refused, and never changed. The error names the field."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.formats.changelog.formats import DebeziumJsonFormat
from penstock.connectors.formats.columns.exact_cast import exact_cast
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.orc import OrcFormat
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.table.types import DataTypes
from tests.unit.connectors.support import read_source

FORMATS = {"parquet": (pq.write_table, ParquetFormat), "orc": (orc.write_table, OrcFormat)}
LARGE = Decimal("12345678901234567890123456789012345678")


def read(kind: str, path: Path, table: pa.Table, fields: Any) -> list[Any]:
    write, format = FORMATS[kind]
    write(table, str(path / "a"))
    return read_source(FileSource.for_bulk_file_format(format(fields), str(path)).build())


@settings(max_examples=100, deadline=None)
@given(
    digits=st.integers(-(10**38) + 1, 10**38 - 1),
    scale=st.integers(0, 38),
    other=st.integers(0, 38),
    nested=st.booleans(),
)
def test_a_cast_of_decimals_keeps_the_value_or_is_refused(digits: int, scale: int, other: int, nested: bool) -> None:
    value = Decimal((0 if digits >= 0 else 1, tuple(map(int, str(abs(digits)))), -scale))
    source, target = pa.decimal128(38, scale), pa.decimal128(38, other)
    column = pa.array([value, None], source)
    if nested:
        column = pa.array([[value], None], pa.list_(source))
        target = pa.list_(target)
    try:
        found = exact_cast(column, target).to_pylist()
    except pa.ArrowInvalid:
        return
    assert found == ([[value], None] if nested else [value, None])


@pytest.mark.parametrize("kind", FORMATS)
def test_decimals_of_too_many_digits_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    table = pa.table({"total": pa.array([Decimal(1), LARGE], pa.decimal128(38, 0))})
    with pytest.raises(RecordFormatError, match=r"column 'total' of .*, has the type decimal128\(38, 0\)"):
        read(kind, tmp_path, table, {"total": Decimal})
    assert read(kind, tmp_path, table, {"total": DataTypes.DECIMAL(38, 0)}) == [{"total": Decimal(1)}, {"total": LARGE}]


@pytest.mark.parametrize("kind", FORMATS)
def test_optional_columns_missing_in_a_file_are_none(kind: str, tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"]})
    fields = {"note": str | None, "id": str, "at": datetime.datetime | None, "tags": list[str] | None}
    rows = read(kind, tmp_path, table, fields)
    assert rows == [{"note": None, "id": name, "at": None, "tags": None} for name in "ab"]
    with pytest.raises(RecordFormatError, match=r"no column 'note'.*it has id"):
        read(kind, tmp_path, table, {"note": str, "id": str})


@pytest.mark.parametrize("kind", FORMATS)
def test_times_with_a_zone_are_read_as_aware_datetimes(kind: str, tmp_path: Path) -> None:
    at = datetime.datetime(2020, 7, 1, 12, tzinfo=datetime.UTC)
    table = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC")), "naive": pa.array([at], pa.timestamp("us"))})
    [row] = read(kind, tmp_path, table, {"at": datetime.datetime, "naive": datetime.datetime})
    assert row == {"at": at, "naive": at.replace(tzinfo=None)}
    [row] = read(kind, tmp_path, table, pa.schema({"at": pa.timestamp("us")}))
    assert row == {"at": at.replace(tzinfo=None)}


def test_nanoseconds_are_read_as_microseconds_or_refused_by_name(tmp_path: Path) -> None:
    exact = pa.table({"at": pa.array([1_000], pa.timestamp("ns"))})
    finer = pa.table({"at": pa.array([1_001], pa.timestamp("ns"))})
    at = datetime.datetime(1970, 1, 1, microsecond=1)
    for fields in ({"at": datetime.datetime}, None, pa.schema({"at": pa.timestamp("ns")})):
        assert read("parquet", tmp_path, exact, fields) == [{"at": at}]
        with pytest.raises(RecordFormatError, match=r"(?s)'at'.*[Dd]eclare the field as int") as caught:
            read("parquet", tmp_path, finer, fields)
        assert "damaged" not in str(caught.value)
        assert "pandas" not in caught.value.remedy
    assert read("parquet", tmp_path, finer, {"at": int}) == [{"at": 1_001}]


@pytest.mark.parametrize("text", ["NaN", "-NaN", "sNaN", "Infinity", "-Infinity", "NaN12"])
def test_decimals_without_a_json_number_become_null_like_floats(text: str) -> None:
    for fields in (None, ["a", "b", "c"]):
        record = {"a": Decimal(text), "b": [Decimal("1.10"), Decimal(text)], "c": "NaN Infinity"}
        assert JsonLinesEncoder(fields).encode(record) == b'{"a":null,"b":[1.10,null],"c":"NaN Infinity"}\n'
    assert json.loads(JsonLinesEncoder(["a"]).encode((Decimal(text),))) == {"a": None}


def debezium(fields: Any, value: Any, **options: Any) -> Any:
    message = json.dumps({"op": "c", "before": None, "after": {"price": value}}).encode()
    [row] = DebeziumJsonFormat(fields, **options).decoder(b"")(message).rows().values
    return row.price


def test_an_error_names_the_debezium_setting_that_makes_decimals_base64() -> None:
    with pytest.raises(MalformedBlock, match=r"base64 as written with decimal\.handling\.mode=precise"):
        debezium({"price": Decimal}, "BNI=")
    with pytest.raises(MalformedBlock, match="decimal_handling_mode='string' or 'precise'"):
        debezium({"price": Decimal}, "1234")
    assert debezium({"price": Decimal}, "12.34") == Decimal("12.34")
    assert debezium({"price": Decimal}, "123") == Decimal(123)
    assert debezium({"price": Decimal}, "1234", decimal_handling_mode="string") == Decimal(1234)


def test_debezium_decimals_of_the_mode_precise_are_read() -> None:
    for text, value in (("BNI=", "12.34"), ("+y4=", "-12.34"), ("AA==", "0.00"), ("1234", "-26.93")):
        raw = int.from_bytes(base64.b64decode(text), "big", signed=True)
        assert (
            debezium({"price": DataTypes.DECIMAL(10, 2)}, text, decimal_handling_mode="precise") == Decimal(raw) / 100
        )
        if text != "1234":
            assert Decimal(raw) / 100 == Decimal(value)
    with pytest.raises(MalformedBlock, match="is not 'precise'"):
        debezium({"price": DataTypes.DECIMAL(10, 2)}, "12.34", decimal_handling_mode="precise")
    with pytest.raises(InvalidJob, match="needs the scale of 'price'"):
        DebeziumJsonFormat({"price": Decimal}, decimal_handling_mode="precise")


@pytest.mark.parametrize(("reset", "kind"), [("latest", "latest"), ("earliest", "earliest"), (None, "earliest")])
def test_a_kafka_source_without_starting_offsets_begins_at_auto_offset_reset(reset: Any, kind: str) -> None:
    pytest.importorskip("confluent_kafka")
    from penstock.common.serialization import SimpleStringSchema
    from penstock.connectors.kafka.source.kafka_source import KafkaSource

    builder = KafkaSource.builder().set_bootstrap_servers("kafka:9092").set_topics("t")
    builder = builder.set_value_only_deserializer(SimpleStringSchema())
    if reset:
        builder = builder.set_property("auto.offset.reset", reset)
    assert builder.build()._starting.kind == kind
