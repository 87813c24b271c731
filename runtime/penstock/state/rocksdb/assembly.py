"""Which files of former databases make the database of a range of key groups (pure; see `manifest`).

Rows begin with their key group, so a file whose first and last row lie outside of the range need not even be fetched. What is left may reach
beyond the range. For files of one database that does no harm: the rows are hidden by a deletion of ranges, which compaction carries
out later. Files of several databases are put into one only if none of them reaches beyond its own database's part (`is_clean`): then
no two databases have a row, or a deletion, of the same key, and levels stay what they are.

Timers are ordered by time, not by key group, so their files belong to one database and are never put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.state.backend import KeyGroupRange
from penstock.state.rocksdb.manifest import Version
from penstock.state.rocksdb.rows import STATE, group_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.state.rocksdb.manifest import Table


def within(version: Version, groups: KeyGroupRange) -> Version:
    """Without the files that have no row of the key groups."""
    return _chosen(version, lambda table: _overlaps(table, groups))


def states_only(version: Version) -> Version:
    return _chosen(version, lambda table: True, others=False)


def is_clean(version: Version, groups: KeyGroupRange) -> bool:
    """Whether no file of a state has anything outside of the key groups."""
    first, stop = group_prefix(groups.start), group_prefix(groups.end + 1)
    states = [id for id, name in version.families.items() if name.startswith(STATE)]
    tables = [table for id in states for table in version.tables.get(id, {}).values()]
    return all(first <= table.first_key and table.last_key < stop for table in tables)


def outside(version: Version, groups: KeyGroupRange) -> list[KeyGroupRange]:
    """Key groups besides these that files of states may have anything of; what a former range hid may be among it.

    A file's last key may be an end that is not part of it any more; then a key group too many is named.
    """
    states = [
        table for name in version.families.values() if name.startswith(STATE) for table in version.of_family(name)
    ]
    first = min((_group(table.first_key) for table in states), default=groups.start)
    last = max((_group(table.last_key) for table in states), default=groups.end)
    sides = KeyGroupRange(first, groups.start - 1), KeyGroupRange(groups.end + 1, last)
    return [side for side in sides if side.start <= side.end]


def _group(row: bytes) -> int:
    return int.from_bytes(row[:2].ljust(2, b"\0"), "big")


@dataclass(frozen=True)
class Move:
    """A file of one of the databases gets another name."""

    source: int
    name: str
    new_name: str


def merged(versions: Sequence[Version]) -> tuple[Version, list[Move]]:
    """One database of the states of several, each of which is clean. The first keeps its names of files.

    Files get numbers, and the order on level 0, behind those of the databases before; families of one name are one.
    """
    whole, moves, epochs = Version(), [], 0
    ids = {"default": 0}
    for index, version in enumerate(versions):
        shift, begin = (whole.next_file if index else 0), epochs
        for id, name in sorted(version.families.items()):
            if name != "default" and not name.startswith(STATE):
                continue
            new_id = ids.setdefault(name, len(ids))
            whole.families[new_id] = name
            tables = whole.tables.setdefault(new_id, {})
            for table in version.tables.get(id, {}).values():
                moved = table.renumbered(table.number + shift, table.epoch + begin if table.epoch else 0)
                tables[moved.number] = moved
                epochs = max(epochs, moved.epoch)
                moves.append(Move(index, table.name, moved.name))
        whole.next_file = shift + version.next_file
        whole.last_sequence = max(whole.last_sequence, version.last_sequence)
    return whole, moves


def _overlaps(table: Table, groups: KeyGroupRange) -> bool:
    return table.last_key >= group_prefix(groups.start) and table.first_key < group_prefix(groups.end + 1)


def _chosen(version: Version, wanted: Callable[[Table], bool], *, others: bool = True) -> Version:
    chosen = Version(dict(version.families), {}, version.next_file, version.last_sequence)
    for id, tables in version.tables.items():
        is_state = version.families.get(id, "").startswith(STATE)
        chosen.tables[id] = {n: t for n, t in tables.items() if (wanted(t) if is_state else others)}
    return chosen
