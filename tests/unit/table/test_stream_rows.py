"""Records of streams become rows of SQL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.sql.plan.reading import read_plan
from penstock.table.stream_table_environment import ToSqlRow


def rows(columns: list[tuple[str, Any]], value: Any, time: int | None, *, changelog: bool = False) -> list[Any]:
    function = ToSqlRow(columns, "UTC", changelog=changelog)
    context: Any = SimpleNamespace(timestamp=lambda: time)
    function.open(context)
    return list(function.process_element(value, context))


def test_a_time_column_has_the_timestamp_of_the_record():
    assert rows([("rowtime", None)], (), 5) == [(5000,)]
    with pytest.raises(InvalidJob, match="has no timestamp for the metadata column rowtime"):
        rows([("rowtime", None)], (), None)


def test_a_change_that_is_not_a_row_is_refused():
    with pytest.raises(InvalidJob, match="is not a Row"):
        rows([], (), None, changelog=True)


def test_a_deeply_nested_text_is_not_a_plan():
    with pytest.raises(InvalidJob, match="not a compiled plan"):
        read_plan("[" * 100_000)
