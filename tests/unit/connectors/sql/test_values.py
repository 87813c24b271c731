"""Conversion of values between Arrow, Python and drivers, rows to write and to delete, and positions."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.connectors.sql.keys import key_of, position_of
from penstock.connectors.sql.statements import runs, shown
from penstock.connectors.sql.values import check_values, for_driver, from_driver, plain
from penstock.connectors.tables.row_writers import GONE

AT = datetime.datetime(2013, 7, 1, 12, 0, 0, 123456)
ZONED = AT.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
UTC = datetime.datetime(2013, 7, 1, 10, 0, 0, 123456)


class LikePandas(datetime.datetime):
    """A fake of `pandas.Timestamp`, a subclass of datetime with a conversion to it."""

    def to_pydatetime(self, warn: bool = True) -> datetime.datetime:
        return datetime.datetime(*self.timetuple()[:6])


class NaTType:
    """A fake of pandas' missing time, which is recognized by its class name."""


@pytest.mark.parametrize(
    ("value", "mysql", "sqlite", "postgresql"),
    [
        (np.int64(7), 7, 7, 7),
        (np.float64(0.5), 0.5, 0.5, 0.5),
        (np.bool_(True), True, True, True),
        (np.str_("ä"), "ä", "ä", "ä"),
        (np.datetime64(AT, "ns"), AT, AT.isoformat(" "), AT),
        (np.array([1, 2]), "[1,2]", "[1,2]", [1, 2]),
        (ZONED, UTC, UTC.isoformat(" "), ZONED),
        (AT.date(), AT.date(), "2013-07-01", AT.date()),
        (AT.time(), AT.time(), "12:00:00.123456", AT.time()),
        (decimal.Decimal("1.50"), decimal.Decimal("1.50"), "1.50", decimal.Decimal("1.50")),
        (bytearray(b"x"), b"x", b"x", b"x"),
        ({"a": [1]}, '{"a":[1]}', '{"a":[1]}', '{"a":[1]}'),
        (LikePandas(2013, 7, 1), datetime.datetime(2013, 7, 1), "2013-07-01 00:00:00", datetime.datetime(2013, 7, 1)),
        (NaTType(), None, None, None),
        (None, None, None, None),
    ],
)  # fmt: skip
def test_values_of_libraries_become_values_of_the_driver(value: Any, mysql: Any, sqlite: Any, postgresql: Any) -> None:
    for database, expected in (("mysql", mysql), ("sqlite", sqlite), ("postgresql", postgresql)):
        found = plain(value, database)
        assert (found, type(found)) == (expected, type(expected)), database


def test_a_value_that_the_database_cannot_store_is_refused_before_it_is_sent() -> None:
    for database in ("mysql", "sqlite"):
        with pytest.raises(RecordFormatError):
            plain(float("nan"), database)
        with pytest.raises(RecordFormatError, match="field 'x'"):
            check_values(pa.record_batch({"x": [0.5, float("nan")]}), database)
    check_values(pa.record_batch({"x": [float("inf"), None]}), "sqlite")
    check_values(pa.record_batch({"x": [float("nan")]}), "postgresql")
    with pytest.raises(RecordFormatError):
        check_values(pa.record_batch({"x": [float("inf")]}), "mysql")
    with pytest.raises(RecordFormatError, match="as JSON"):
        check_values(pa.record_batch({"x": pa.array([{"raw": b"x"}])}), "postgresql")
    with pytest.raises(RecordFormatError, match="as JSON"):
        plain({"raw": b"x"}, "mysql")


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.bool_(), 1, True),
        (pa.bool_(), b"\x01", True),
        (pa.int64(), decimal.Decimal(7), 7),
        (pa.float64(), decimal.Decimal("0.5"), 0.5),
        (pa.decimal128(9, 2), 1.5, decimal.Decimal("1.5")),
        (pa.string(), uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pa.string(), b"x", "x"),
        (pa.binary(), "x", b"x"),
        (pa.timestamp("us"), AT.isoformat(" "), AT),
        (pa.date32(), "2013-07-01", AT.date()),
        (pa.date32(), AT, AT.date()),
        (pa.time64("us"), datetime.timedelta(hours=1, microseconds=5), datetime.time(1, 0, 0, 5)),
        (pa.time64("us"), "01:00:00", datetime.time(1)),
        (pa.list_(pa.int64()), "[1, 2]", [1, 2]),
    ],
)  # fmt: skip
def test_values_of_a_driver_become_the_declared_type(kind: pa.DataType, given: Any, expected: Any) -> None:
    [(found,), (none,)] = from_driver([(given,), (None,)], pa.schema([("x", kind)]))
    assert (found, type(found), none) == (expected, type(expected), None)


def test_times_are_cut_to_microseconds() -> None:
    assert for_driver(pa.array([np.datetime64("2013-07-01T12:00:00.123456789")]), "mysql") == [AT]
    assert for_driver(pa.array([1], pa.timestamp("us", "Europe/Zurich")), "sqlite") == ["1970-01-01 00:00:00.000001"]


def test_the_last_change_of_each_key_wins_and_the_order_is_kept() -> None:
    changes = [
        (1, "a", False),
        (2, "b", False),
        (1, None, True),
        (3, "c", False),
        (2, "B", False),
        (4, None, True),
        (3, None, True),
    ]
    ids, keys, gone = zip(*changes, strict=True)
    batch = pa.record_batch({"id": ids, "key": keys, GONE: gone})
    found = list(runs(batch, "mysql", ["id", "key"], ["id"], deletes=True))
    assert found == [(True, [(1,)]), (False, [(2, "B")]), (True, [(4,), (3,)])]
    assert list(runs(batch, "mysql", ["id"], [], deletes=False)) == [(False, [(n,) for n in ids])]


def test_a_row_in_an_error_is_shortened() -> None:
    assert shown({"id": 1, "key": "ä"}) == "{'id': 1, 'key': 'ä'}"
    assert len(shown({f"f{n}": "x" * 10_000 for n in range(50)})) < 600


@pytest.mark.parametrize(
    "key", [7, -(2**70), "ä", AT, ZONED, AT.date(), decimal.Decimal("1.50"), uuid.UUID(int=3), b"\x00"]
)
def test_positions_are_json_and_convert_back_to_the_key(key: Any) -> None:
    found = key_of(json.loads(json.dumps(position_of(key))))
    assert (found, type(found)) == (key, type(key))


def test_a_value_without_an_exact_order_is_refused_as_a_key() -> None:
    for key in (0.5, True, None):
        with pytest.raises(InvalidJob, match="which a key cannot have"):
            position_of(key)
