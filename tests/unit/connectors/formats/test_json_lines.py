from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.object_batch import ObjectBatch
from penstock.connectors.formats.record_format import Block, MalformedBlock, RejectedRecord, isolate
from penstock.records.batch import ColumnBatch

LINES = b'{"id":"a","n":1,"celsius":1.5}\n{"id":"b","n":2,"celsius":3,"other":[{}]}\n'


class Named(NamedTuple):
    id: str
    n: int
    celsius: float = 0.0


@dataclasses.dataclass
class Plain:
    id: str
    n: int
    celsius: float = 0.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted:
    id: str
    n: int
    celsius: float


class Typed(TypedDict):
    id: str
    n: int
    celsius: float


class Struct(msgspec.Struct):
    id: str
    n: int
    celsius: float


FIELDS = {"id": str, "n": int, "celsius": float}
ROW = Types.ROW_NAMED(["id", "n", "celsius"], [Types.STRING(), Types.LONG(), Types.DOUBLE()])


@pytest.mark.parametrize(
    ("declaration", "record", "expected"),
    [
        (Named, None, [Named("a", 1, 1.5), Named("b", 2, 3.0)]),
        (Plain, None, [Plain("a", 1, 1.5), Plain("b", 2, 3.0)]),
        (Slotted, None, [Slotted(id="a", n=1, celsius=1.5), Slotted(id="b", n=2, celsius=3.0)]),
        (Typed, None, [{"id": "a", "n": 1, "celsius": 1.5}, {"id": "b", "n": 2, "celsius": 3.0}]),
        (Struct, None, [Struct("a", 1, 1.5), Struct("b", 2, 3.0)]),
        (FIELDS, None, [{"id": "a", "n": 1, "celsius": 1.5}, {"id": "b", "n": 2, "celsius": 3.0}]),
        (FIELDS, "tuple", [("a", 1, 1.5), ("b", 2, 3.0)]),
        (Named, "row", [Row(id="a", n=1, celsius=1.5), Row(id="b", n=2, celsius=3.0)]),
        (ROW, None, [Row(id="a", n=1, celsius=1.5), Row(id="b", n=2, celsius=3.0)]),
        (ROW, "tuple", [("a", 1, 1.5), ("b", 2, 3.0)]),
    ],
)
def test_records_have_the_declared_form_from_rows_and_from_columns(
    declaration: Any, record: Any, expected: Any
) -> None:
    format = pickle.loads(pickle.dumps(JsonLinesFormat(declaration, record=record)))
    batch = format.decoder(b"")(LINES)
    assert isinstance(batch, ObjectBatch)
    assert len(batch) == 2
    assert batch.columns.to_pydict() == {"id": ["a", "b"], "n": [1, 2], "celsius": [1.5, 3.0]}
    assert pickle.loads(pickle.dumps(batch.make_rows))(batch.columns) == expected
    assert batch.rows().values == expected
    assert list(map(type, batch.rows().values)) == list(map(type, expected))


def test_undeclared_records_are_plain_json_values() -> None:
    batch = JsonLinesFormat().decoder(b"")(b'{"a":1}\n[1,null]\n"x"\n')
    assert batch.rows().values == [{"a": 1}, [1, None], "x"]


def test_columns_are_made_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = JsonLinesFormat(Named).decoder(b"")(LINES)
    assert isinstance(batch, ObjectBatch)
    with monkeypatch.context() as patched:
        patched.setattr(ObjectBatch, "columns", property(lambda self: pytest.fail("columns were made")))
        times = batch.column("n").to_numpy()
        stamped = batch.with_timestamps(times)
        assert stamped.rows().timestamps == [1, 2]
        second = stamped.slice(1, 2)
        assert second.rows().values == [Named("b", 2, 3.0)]
        assert second.rows().timestamps == [2]
        with pytest.raises(KeyError):
            batch.column("missing")
    assert second.columns.to_pydict() == {"id": ["b"], "n": [2], "celsius": [3.0]}
    eager = ColumnBatch(second.columns, second.timestamps, second.make_rows)
    assert eager.column("n").to_pylist() == second.column("n").to_pylist() == [2]
    assert eager.with_timestamps(None).slice(0, 1).rows().values == second.rows().values
    with pytest.raises(KeyError):
        eager.column("missing")


def test_optional_fields_may_be_null_or_missing() -> None:
    decode = JsonLinesFormat({"id": str, "n": int | None}).decoder(b"")
    batch = decode(b'{"id":"a","n":null}\n{"id":"b"}\n{"id":"c","n":3}\n')
    assert batch.rows().values == [{"id": "a", "n": None}, {"id": "b", "n": None}, {"id": "c", "n": 3}]
    assert isinstance(batch, ObjectBatch)
    assert batch.columns.to_pydict()["n"] == [None, None, 3]


def test_defaults_of_classes_fill_missing_fields() -> None:
    for declaration in (Named, Plain):
        batch = JsonLinesFormat(declaration).decoder(b"")(b'{"id":"a","n":1}\n')
        assert batch.rows().values[0].celsius == 0.0


@dataclasses.dataclass
class Nested:
    reading: Plain
    history: list[Plain]
    labels: dict[str, int]


def test_nested_records_are_equal_from_rows_and_from_columns() -> None:
    line = b'{"reading":{"id":"a","n":1},"history":[{"id":"b","n":2}],"labels":{"x":1}}\n'
    batch = JsonLinesFormat(Nested).decoder(b"")(line)
    expected = [Nested(Plain("a", 1), [Plain("b", 2)], {"x": 1})]
    assert batch.rows().values == expected
    assert isinstance(batch, ObjectBatch)
    assert batch.make_rows(batch.columns) == expected


def test_nested_rows_are_rows() -> None:
    inner = Types.ROW_NAMED(["id"], [Types.STRING()])
    format = JsonLinesFormat(Types.ROW_NAMED(["one", "many"], [inner, Types.LIST(inner)]))
    batch = format.decoder(b"")(b'{"one":{"id":"a"},"many":[{"id":"b"}]}\n')
    expected = [Row(one=Row(id="a"), many=[Row(id="b")])]
    assert batch.rows().values == expected
    assert isinstance(batch, ObjectBatch)
    assert batch.make_rows(batch.columns) == expected


def test_a_type_without_columns_is_read_as_rows() -> None:
    batch = JsonLinesFormat({"id": str, "payload": Any}).decoder(b"")(b'{"id":"a","payload":{"x":[1]}}\n')
    assert batch.rows().values == [{"id": "a", "payload": {"x": [1]}}]


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"a","n":1.5,"celsius":1}',
        b'{"id":"a","n":"1","celsius":1}',
        b'{"id":"a","celsius":1}',
        b'{"id":null,"n":1,"celsius":1}',
        b'{"id":"a","n":9223372036854775808,"celsius":1}',
        b'{"id":"a","n":1,"celsius":1',
        b'{"id":"a","n":1,"celsius":1}{"id":"a","n":1,"celsius":1}',
        b"not json",
        b"[1,2,3]",
        b'{"id":"\xff","n":1,"celsius":1}',
        b'{"id":"\\ud800","n":1,"celsius":1}',
    ],
)
def test_a_malformed_line_is_named(line: bytes) -> None:
    format = JsonLinesFormat(FIELDS)
    decode = format.decoder(b"")
    block = Block(1000, 7, LINES + line + b"\n" + LINES)
    with pytest.raises(MalformedBlock):
        decode(block.data)
    with pytest.raises(RecordFormatError, match=rf"malformed JSON line in 'x.jsonl', line 9, byte {1000 + len(LINES)}"):
        isolate(format, decode, block, "x.jsonl")
    rejecting = JsonLinesFormat(FIELDS, on_error="side-output")
    batch, rejected = isolate(rejecting, decode, block, "x.jsonl")
    assert batch is not None
    assert [value["id"] for value in batch.rows().values] == ["a", "b", "a", "b"]
    (record,) = rejected
    assert isinstance(record, RejectedRecord)
    assert (record.line, record.offset) == (9, 1000 + len(LINES))
    assert record.record == line.decode("utf-8", "backslashreplace")
    assert record.reason


def test_values_nested_too_deep_are_malformed() -> None:
    line = b'{"n": 1, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(MalformedBlock, match="recursion"):
        JsonLinesFormat({"n": int}).decoder(b"")(line)
    with pytest.raises(MalformedBlock, match="recursion"):
        JsonLinesFormat().decoder(b"")(line)


def test_a_value_over_two_lines_is_two_malformed_lines() -> None:
    format = JsonLinesFormat(on_error="side-output")
    decode = format.decoder(b"")
    batch, rejected = isolate(format, decode, Block(0, 1, b'1\n{"a":\n1}\n2\n'), "x")
    assert batch is not None
    assert batch.rows().values == [1, 2]
    assert [r.line for r in rejected] == [2, 3]


@given(
    st.lists(
        st.one_of(
            st.integers(-(2**63), 2**63 - 1).map(lambda n: json.dumps({"n": n})),
            st.sampled_from(["", "  ", "{", "}", '{"n":1}{"n":2}', '{"n":1} ', '{"n":"1"}', "[1", '{"n":', "\r"]),
        ),
        max_size=30,
    )
)
def test_no_line_is_lost_between_records_and_rejected(lines: list[str]) -> None:
    format = JsonLinesFormat({"n": int}, on_error="side-output")
    decode = format.decoder(b"")
    data = "".join(line + "\n" for line in lines).encode()
    try:
        good, rejected = decode(data).rows().values, []
    except MalformedBlock:
        batch, rejected = isolate(format, decode, Block(0, 1, data), "x")
        good = [] if batch is None else batch.rows().values

    def parsed(line: str) -> Any:
        try:
            value = json.loads(line)
        except ValueError:
            return None
        return value if isinstance(value, dict) and type(value.get("n")) is int else None

    assert good == [parsed(line) for line in lines if parsed(line) is not None]
    assert [r.line for r in rejected] == [n for n, line in enumerate(lines, 1) if line.strip() and parsed(line) is None]


def test_a_long_record_is_shortened_in_the_message() -> None:
    format = JsonLinesFormat()
    with pytest.raises(RecordFormatError, match=r"… \(5001 characters\)"):
        isolate(format, format.decoder(b""), Block(0, 1, b"{" + b"x" * 5000 + b"\n"), "x")


def test_an_unknown_declaration_is_refused() -> None:
    for declaration in (int, 5, list[int]):
        with pytest.raises(InvalidJob):
            JsonLinesFormat(declaration)
