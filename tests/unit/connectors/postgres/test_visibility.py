"""Changes that the rows of a snapshot already contain, compared with a list of commits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.connectors.postgres.cdc.messages import UNCHANGED, Begin, Commit, Keepalive, RowChange, log_end, parse
from penstock.connectors.postgres.cdc.visibility import ReadRows, Snapshot


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_sees_transactions_committed_before_it(seed: int) -> None:
    chance = random.Random(seed)
    first = chance.choice([3, 2**32 - 20, 2**33 + 5])
    ends = {first + n: chance.randrange(n, n + 30) for n in range(60)}
    now = chance.randrange(60)
    running = [xid for xid, end in ends.items() if xid < first + now and end >= now]
    text = f"{min(running, default=first + now)}:{first + now}:{','.join(map(str, running))}"
    snapshot = Snapshot.parse(text)
    for xid, end in ends.items():
        assert snapshot.sees(xid & 0xFFFFFFFF) == (xid < first + now and end < now)


def test_each_key_has_the_snapshot_of_its_part_of_the_range() -> None:
    rows = ReadRows.of([[10, None, [[None, "9:9:"]]], [None, 10, [[4, "5:5:"], [4, "6:6:"], [None, "8:8:7"]]]])
    seen = {key: [xid for xid in range(3, 10) if rows.saw(xid, key)] for key in (-100, 4, 5, 10, 11)}
    assert seen == {-100: [3, 4], 4: [3, 4], 5: [3, 4, 5, 6], 10: [3, 4, 5, 6], 11: [3, 4, 5, 6, 7, 8]}
    assert [rows.saw_everywhere(xid) for xid in (4, 5, 9)] == [True, None, False]
    assert not ReadRows([]).saw(3, 1)
    assert ReadRows([]).saw_everywhere(3) is False


def test_text_keys_are_compared_like_collation_c() -> None:
    rows = ReadRows.of([[None, None, [[["Z", "9"], "5:5:"], [None, "8:8:"]]]])
    keys: list[Any] = [["A", "1"], ["Z", "10"], ["Z", "9"], ["Z", "91"], ["a", "1"], ["ä", "1"]]
    assert [rows.saw(6, key) for key in keys] == [False, False, False, True, True, True]


def framed(message: bytes) -> bytes:
    return b"w" + (7).to_bytes(8) + (99).to_bytes(8) + bytes(8) + message


def text(value: str) -> bytes:
    return b"t" + len(value.encode()).to_bytes(4) + value.encode()


def test_messages_are_parsed_by_their_type() -> None:
    columns = (4).to_bytes(2) + text("1") + b"n" + b"u" + text("ä")
    values = [b"1", None, UNCHANGED, "ä".encode()]
    oid = (16384).to_bytes(4)
    assert parse(framed(b"I" + oid + b"N" + columns)) == RowChange("I", 16384, None, False, values)
    assert parse(framed(b"U" + oid + b"O" + columns + b"N" + columns)) == RowChange("U", 16384, values, True, values)
    assert parse(framed(b"D" + oid + b"K" + columns)) == RowChange("D", 16384, values, False, None)
    assert parse(framed(b"B" + (80).to_bytes(8) + (1_000_000).to_bytes(8) + (5).to_bytes(4))) == Begin(
        80, 946684801000, 5
    )
    assert parse(framed(b"C\0" + (80).to_bytes(8) + (90).to_bytes(8) + bytes(8))) == Commit(90)
    assert parse(framed(b"Y" + oid)) is None
    assert parse(b"k" + (90).to_bytes(8) + bytes(8) + b"\1") == Keepalive(90, True)
    assert log_end(framed(b"B")) == 99
