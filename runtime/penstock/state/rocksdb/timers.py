"""Stored timers of the RocksDB backend: each snapshot updates a column family from the timer tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.decoding import decoding
from penstock.state.rocksdb.database import scan
from penstock.state.rocksdb.rows import decode_namespace, split_row, split_timer, timer_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.rocksdb.database import Database
    from penstock.state.rocksdb.rows import Addresses
    from penstock.state.timers.timer_table import TimerTable

FAMILY = "timers"
_END = b"\xff"


def write_timers(
    database: Database, domain: int, timers: TimerTable, addresses: Addresses, *, everything: bool
) -> None:
    """Write the changes of a table, or all of its timers, to the column family."""
    family = database.family(FAMILY)
    batch, handle = database.batch(), database.handle(FAMILY)
    if everything:
        timers.track(on=True)
        for row, _ in scan(family, bytes([domain]), bytes([domain + 1])):
            batch.delete(row, handle)
        for timestamp, key, namespace in timers.timers():
            batch.put(timer_prefix(domain, timestamp) + addresses.of(key, namespace), b"", handle)
        database.write(batch)
        return
    changes = timers.take_changes()
    for start, stop in _fired_ranges(changes.dropped, timers.first()):
        batch.delete_range(timer_prefix(domain, start), timer_prefix(domain, stop), handle)
    for timestamp, pair in changes.deleted:
        batch.delete(timer_prefix(domain, timestamp) + addresses.of(*pair), handle)
    for timestamp, pair in changes.registered:
        batch.put(timer_prefix(domain, timestamp) + addresses.of(*pair), b"", handle)
    database.write(batch)


def _fired_ranges(dropped: Iterable[int], first: int | None) -> list[tuple[int, int]]:
    """Return the fired timestamps as ranges (start, stop). All timestamps before the first existing timer are one range.

    Many range deletions would make RocksDB's reads slow.
    """
    past = [timestamp for timestamp in dropped if first is None or timestamp < first]
    ranges = [(min(past), max(past) + 1)] if past else []
    return ranges + [(timestamp, timestamp + 1) for timestamp in dropped if first is not None and timestamp >= first]


def read_timers(database: Database, keys: KeyCodec, tables: Sequence[TimerTable], groups: KeyGroupRange) -> None:
    """Fill the tables with timers of these key groups. The column family may also have timers of other key groups."""
    if FAMILY not in database.families:
        return
    with decoding("the timers"):
        for domain, timestamp, namespace, key in stored_timers(database, groups):
            tables[domain].space(timestamp)[keys.decode(key), namespace] = None


def stored_timers(database: Database, groups: KeyGroupRange) -> Iterator[tuple[int, int, Any, bytes]]:
    """Yield (domain, timestamp, namespace, encoded key) of the key groups, in order of domain and time."""
    for row, _ in scan(database.family(FAMILY), b"", _END):
        domain, timestamp, address = split_timer(row)
        group, namespace, key, _ = split_row(address)
        if groups.start <= group <= groups.end:
            yield domain, timestamp, decode_namespace(namespace), key
