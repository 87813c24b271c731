"""Timers of the RocksDB backend at rest: a column family that follows the timer tables at each snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.rocksdb.database import scan
from penstock.state.rocksdb.rows import decode_namespace, split_row, split_timer, timer_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.state.backend import KeyGroupRange
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.rocksdb.database import Database
    from penstock.state.rocksdb.rows import Addresses
    from penstock.state.timers.timer_table import TimerTable

FAMILY = "timers"
_END = b"\xff"


def write_timers(
    database: Database, domain: int, timers: TimerTable, addresses: Addresses, *, everything: bool
) -> None:
    """Bring the column family up to date with a table: by what changed, or all of it."""
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
    """Timestamps that fired, as ranges (start, stop): everything before the first timer there is goes at once, since
    many range deletions make RocksDB's reads slow."""
    past = [timestamp for timestamp in dropped if first is None or timestamp < first]
    ranges = [(min(past), max(past) + 1)] if past else []
    return ranges + [(timestamp, timestamp + 1) for timestamp in dropped if first is not None and timestamp >= first]


def read_timers(database: Database, keys: KeyCodec, tables: Sequence[TimerTable], groups: KeyGroupRange) -> None:
    """Fill the tables from the column family, which may hold timers of other key groups as well."""
    if FAMILY not in database.families:
        return
    for domain, timestamp, namespace, key in stored_timers(database, groups):
        tables[domain].space(timestamp)[keys.decode(key), namespace] = None


def stored_timers(database: Database, groups: KeyGroupRange) -> Iterator[tuple[int, int, Any, bytes]]:
    """(domain, timestamp, namespace, encoded key) of the key groups, in order of domain and time."""
    for row, _ in scan(database.family(FAMILY), b"", _END):
        domain, timestamp, address = split_timer(row)
        group, namespace, key, _ = split_row(address)
        if groups.start <= group <= groups.end:
            yield domain, timestamp, decode_namespace(namespace), key
