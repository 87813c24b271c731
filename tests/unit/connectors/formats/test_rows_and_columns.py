"""A record has the same values and types, whether an exchange sends its batch as rows or as columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.typeinfo import Types
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import Batch, ColumnBatch
from penstock.taskmanager.exchange.rows import decode_buffer
from penstock.taskmanager.exchange.writer import FEW_RECORDS
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.operators.simple import FilterOperator, ProjectOperator
from penstock.testing.operator_run import OperatorRun
from tests.unit.taskmanager.support import exchange
from tests.value_difference import difference

ZONES = ["", "Z", "+02:00", "-09:30"]
TEXTS: dict[Any, list[Any]] = {
    datetime: [f"2024-03-31T02:30:00.000001{zone}" for zone in ZONES] + ["1969-12-31T23:59:59.999999"],
    time: [f"23:59:59.000001{zone}" for zone in ZONES],
    Decimal: ["1", "1.50", "-0", "1E+5", "0.1234567890123456789012", "1.500000000000000000"],
    date: ["0001-01-01", "9999-12-31"],
    bytes: ["aGk=", ""],
    float: [1, 0.1, -0.0, 1e300],
    int: [2**63 - 1, -(2**63), 0],
    Types.FLOAT(): [0.5, 0.1, 1e300],
}
COMMON = [*TEXTS]


def batch_of(kind: Any, texts: Iterable[Any], record: str) -> Batch:
    format = JsonLinesFormat({"n": int, "v": kind if kind == Types.FLOAT() else kind | None}, record=record)
    lines = (json.dumps({"n": n, "v": text}).encode() + b"\n" for n, text in enumerate(texts))
    return format.decoder(b"")(b"".join(lines))


def travelled(batch: Batch, *, as_columns: bool) -> list[Any]:
    """Return the records after an exchange."""
    rows: list[bytes] = []
    spec = replace(exchange(Partitioning(Exchange.FORWARD), 1), takes_columns=as_columns)
    writer = create_writer(spec, 0, lambda target, row: rows.append(row))
    writer.write(batch)
    writer.flush()
    return [value for row in rows if (part := decode_buffer(row).batch()) is not None for value in part.rows().values]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(COMMON), st.sampled_from(["tuple", "dict", "row"]))
def test_an_exchange_of_columns_keeps_values_of_every_zone_scale_and_width(
    data: st.DataObject, kind: Any, record: str
) -> None:
    few = data.draw(st.lists(st.sampled_from([*TEXTS[kind], None]), min_size=1, max_size=4))
    texts = [few[n % len(few)] for n in range(FEW_RECORDS)]
    as_rows = batch_of(kind, texts, record).rows().values
    assert difference(as_rows, travelled(batch_of(kind, texts, record), as_columns=False)) is None
    assert difference(as_rows, travelled(batch_of(kind, texts, record), as_columns=True)) is None


@pytest.mark.parametrize("kind", COMMON, ids=str)
def test_a_filter_on_columns_keeps_the_values(kind: Any) -> None:
    texts = [TEXTS[kind][n % len(TEXTS[kind])] for n in range(20)]
    if kind is Decimal:
        texts = [text for text in texts if len(text) < 20]
    expected = [row for row in batch_of(kind, texts, "tuple").rows().values if row[0] > 2]
    run = OperatorRun(FilterOperator(pc.field("n") > 2)).push_batch(batch_of(kind, texts, "tuple"))
    assert difference(expected, [value for batch in run.output.batches for value in batch.rows().values]) is None


@pytest.mark.parametrize("kind", COMMON, ids=str)
def test_project_keeps_the_values(kind: Any) -> None:
    texts = [TEXTS[kind][n % len(TEXTS[kind])] for n in range(20)]
    expected = [(row[1], row[0]) for row in batch_of(kind, texts, "tuple").rows().values]
    run = OperatorRun(ProjectOperator([1, 0])).push_batch(batch_of(kind, texts, "tuple"))
    assert difference(expected, [value for batch in run.output.batches for value in batch.rows().values]) is None


@pytest.mark.parametrize("kind", [datetime, time, int, date, bytes, float], ids=str)
def test_records_with_exact_columns_are_sent_as_columns(kind: Any) -> None:
    batch = batch_of(kind, [TEXTS[kind][0], None] * FEW_RECORDS, "tuple")
    assert isinstance(batch, ColumnBatch)
    assert batch.travels_as_columns(wanted=True)


@pytest.mark.parametrize("text", ["-0.000000000000000000", "123456789012345678901.000000000000000000"])
def test_an_exchange_keeps_decimals_that_do_not_fit_a_column(text: str) -> None:
    """A column of decimals has at most 38 digits and no negative zero."""
    texts = [text] * FEW_RECORDS
    as_rows = batch_of(Decimal, texts, "tuple").rows().values
    assert difference(as_rows, travelled(batch_of(Decimal, texts, "tuple"), as_columns=True)) is None


def test_decimals_that_fit_a_column_are_sent_as_columns() -> None:
    batch = batch_of(Decimal, ["1.500000000000000000", "-0.500000000000000000", None] * FEW_RECORDS, "tuple")
    assert isinstance(batch, ColumnBatch)
    assert batch.travels_as_columns(wanted=True)
