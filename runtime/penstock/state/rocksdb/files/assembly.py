"""Which files of former databases make the database of a range of key groups (pure; see `manifest`).

Rows begin with their key group, so a file whose first and last row lie outside of the range need not even be fetched. What is left may reach
beyond the range. For files of one database that does no harm: the rows are hidden by a deletion of ranges, which compaction carries
out later. Files of several databases are put into one only if none of them reaches beyond its own database's part (`is_clean`): then
no two databases have a row, or a deletion, of the same key, and levels stay what they are.

What reaches beyond its part is written anew by RocksDB, and as little else as can be. A compaction of a range takes with it what overlaps its files on the
levels below: a file of level 0 has rows of all keys, so it would take everything. So the lowest level, where most of a database is, is
divided first (`divided`): of it only the files at the edges of the part need to be written anew, and nothing lies below them. What is above goes down by one step,
to a level of its own (`raised`), and from there to where RocksDB would have it (`settled`).

Timers are ordered by time, not by key group, so their files belong to one database and are never put together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.state.backend import KeyGroupRange
from penstock.state.rocksdb.files.manifest import Version
from penstock.state.rocksdb.rows import STATE, group_prefix

_LOWEST = 6
"""Level, of RocksDB's seven."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.state.rocksdb.files.manifest import Table


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


def divided(version: Version, groups: KeyGroupRange) -> tuple[Version, Version]:
    """Of states: the files on the lowest level that reach beyond the key groups, with those that share a row with them; all others.

    Files of one level do not overlap each other, so they may be parted; but for those of level 0, and for neighbours that hold versions of
    one row: these stay together.
    """
    first, stop = group_prefix(groups.start), group_prefix(groups.end + 1)
    edges, rest = (Version(dict(version.families), {}, version.next_file, version.last_sequence) for _ in range(2))
    for id, tables in version.tables.items():
        lowest = max((table.level for table in tables.values()), default=0)
        at_edge: set[int] = set()
        for together in _together([table for table in tables.values() if table.level == lowest > 0]):
            if not (first <= together[0].first_key and together[-1].last_key < stop):
                at_edge.update(table.number for table in together)
        for number, table in tables.items():
            (edges if number in at_edge else rest).tables.setdefault(id, {})[number] = table
    return edges, rest


def _together(tables: Iterable[Table]) -> list[list[Table]]:
    """Files of one level below level 0, as it orders them, in runs of neighbours that hold versions of one row.

    RocksDB moves a file from one level to the next as it is, so a row's versions may lie in two files side by side, the newer one first.
    """
    runs: list[list[Table]] = []
    for table in sorted(tables, key=_place):
        if runs and runs[-1][-1].last_key == table.first_key:
            runs[-1].append(table)
        else:
            runs.append([table])
    return runs


def _place(table: Table) -> tuple[bytes, int]:
    """Of a file in the order of a level below level 0: by row, and of one row the newest version first."""
    return table.first_key, -int.from_bytes(table.smallest[len(table.first_key) :], "little")


def _oldest_first(tables: Iterable[Table]) -> list[Table]:
    """As files must lie on level 0, where a look-up takes the newest file that has the row: lower levels are older."""
    levels: dict[int, list[Table]] = {}
    for table in tables:
        levels.setdefault(table.level, []).append(table)
    found: list[Table] = []
    for level in sorted(levels, reverse=True):
        if level:
            found += sorted(levels[level], key=_place, reverse=True)
        else:
            found += sorted(levels[0], key=lambda table: (table.epoch, table.largest_sequence, table.number))
    return found


def raised(version: Version) -> Version:
    """With all files above the lowest level on level 0, those of lower levels as the older ones: so one compaction takes them to
    level 1, which is empty."""
    found = Version(dict(version.families), {}, version.next_file, version.last_sequence)
    for id, tables in version.tables.items():
        lowest = max((table.level for table in tables.values()), default=0)
        above = _oldest_first(table for table in tables.values() if table.level < lowest or not lowest)
        placed = {
            table.number: replace(table, level=max(lowest, 2)) for table in tables.values() if 0 < table.level == lowest
        }
        for epoch, table in enumerate(above, 1):
            placed[table.number] = replace(table.renumbered(table.number, epoch), level=0)
        found.tables[id] = placed
    return found


def settled(version: Version, before: Version) -> Version:
    """What has come to level 1, at its place: above the lowest level if there was something between that and level 0, else on level 0.
    RocksDB would move it down from a level that it does not need, and write anew what it meets there.

    Args:
        before: as `raised` got it.
    """
    found = Version(dict(version.families), {}, version.next_file, version.last_sequence)
    for id, tables in version.tables.items():
        levels = {table.level for table in before.tables.get(id, {}).values()}
        lowest = max(levels, default=0)
        level = _LOWEST if not lowest else lowest - 1 if any(0 < other < lowest for other in levels) else 0
        found.tables[id] = {number: table for number, table in tables.items() if table.level != 1}
        for epoch, table in enumerate(_oldest_first(table for table in tables.values() if table.level == 1), 1):
            found.tables[id][table.number] = replace(table.renumbered(table.number, epoch), level=level)
    return found


def outside(version: Version, groups: KeyGroupRange) -> dict[str, list[KeyGroupRange]]:
    """Key groups besides these that files of each state may have anything of; what a former range hid may be among it.

    A file's last key may be an end that is not part of it any more; then a key group too many is named.
    """
    return {
        name: _outside(version.of_family(name), groups) for name in version.families.values() if name.startswith(STATE)
    }


def _outside(tables: Sequence[Table], groups: KeyGroupRange) -> list[KeyGroupRange]:
    first = min((_group(table.first_key) for table in tables), default=groups.start)
    last = max((_group(table.last_key) for table in tables), default=groups.end)
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
