"""Selection of files of former databases for the database of a range of key groups (pure; see `manifest`).

Rows begin with their key group. A file whose rows are all before or all after the range is not fetched. The remaining
files may extend beyond the range. In files of one database, foreign rows are harmless: a range deletion hides them, and
compaction removes them later. Files of several databases are combined only if each file is inside its own database's
part (`is_clean`). Then no two databases have a row, or a deletion, of the same key, and levels do not change.

RocksDB rewrites the files that extend beyond their part, and as few others as possible. A compaction of a range
includes all overlapping files on the levels below. A file of level 0 has rows of all keys, so its compaction would
include all files. Three steps avoid such a compaction:

- The lowest level, which has most of a database, is split first (`divided`). Only its files at the edges of the part
  are rewritten, and no files are below them.
- The files above the lowest level are moved down by one step, to a separate level (`raised`).
- These files are then moved to the level that RocksDB expects (`settled`).

Timers are ordered by time, not by key group, so their files belong to one database and are never combined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.state.key_groups import KeyGroupRange
from penstock.state.rocksdb.files.manifest import Version
from penstock.state.rocksdb.rows import STATE, group_prefix

_LOWEST = 6
"""Lowest of RocksDB's seven levels."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.state.rocksdb.files.manifest import Table


def within(version: Version, groups: KeyGroupRange) -> Version:
    """Return the version without files that have no row of the key groups."""
    return _chosen(version, lambda table: _overlaps(table, groups))


def states_only(version: Version) -> Version:
    return _chosen(version, lambda table: True, others=False)


def is_clean(version: Version, groups: KeyGroupRange) -> bool:
    """Return whether all files of states are inside the key groups."""
    first, stop = group_prefix(groups.start), group_prefix(groups.end + 1)
    states = [id for id, name in version.families.items() if name.startswith(STATE)]
    tables = [table for id in states for table in version.tables.get(id, {}).values()]
    return all(first <= table.first_key and table.last_key < stop for table in tables)


def divided(version: Version, groups: KeyGroupRange) -> tuple[Version, Version]:
    """Split the version in two: the files on the lowest level that extend beyond the key groups, and all other files.

    Files of one level do not overlap, so they may be in different versions. Two kinds of files must stay together:

    - Files of level 0 overlap. They are all in the second version.
    - Neighbours may have versions of the same row. If one of them extends beyond the key groups, the first version has
      all of them.
    """
    first, stop = group_prefix(groups.start), group_prefix(groups.end + 1)
    edges, rest = (Version(dict(version.families), {}, version.next_file, version.last_sequence) for _ in range(2))
    for id, tables in version.tables.items():
        lowest = max((table.level for table in tables.values()), default=0)
        at_edge: set[int] = set()
        for together in _runs([table for table in tables.values() if table.level == lowest > 0]):
            if not (first <= together[0].first_key and together[-1].last_key < stop):
                at_edge.update(table.number for table in together)
        for number, table in tables.items():
            (edges if number in at_edge else rest).tables.setdefault(id, {})[number] = table
    return edges, rest


def _runs(tables: Iterable[Table]) -> list[list[Table]]:
    """Return the files of one level below level 0, in order of their rows, as runs of neighbours that share a row.

    RocksDB moves a file from one level to the next unchanged. A row's versions may therefore be in two adjacent files,
    the newer one first.
    """
    runs: list[list[Table]] = []
    for table in sorted(tables, key=_position):
        if runs and runs[-1][-1].last_key == table.first_key:
            runs[-1].append(table)
        else:
            runs.append([table])
    return runs


def _position(table: Table) -> tuple[bytes, int]:
    """Return the sort key of a file on a level below level 0: by row, and for the same row the newest version first."""
    return table.first_key, -int.from_bytes(table.smallest[len(table.first_key) :], "little")


def _oldest_first(tables: Iterable[Table]) -> list[Table]:
    """Return the files in the order of level 0, where a look-up takes the newest file with the row.

    Files of lower levels are older.
    """
    levels: dict[int, list[Table]] = {}
    for table in tables:
        levels.setdefault(table.level, []).append(table)
    found: list[Table] = []
    for level in sorted(levels, reverse=True):
        if level:
            found += sorted(levels[level], key=_position, reverse=True)
        else:
            found += sorted(levels[0], key=lambda table: (table.epoch, table.largest_sequence, table.number))
    return found


def raised(version: Version) -> Version:
    """Return the version with all files above the lowest level moved to level 0, in order of their age.

    One compaction then moves the files of level 0 to level 1, which is empty.
    """
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
    """Return the version with the files of level 1 moved to the level that RocksDB expects.

    - If the database had files between level 0 and its lowest level, the files of level 1 are moved directly above the
      lowest level.
    - If the database had files only on level 0, the files of level 1 are moved to RocksDB's lowest level.
    - Otherwise the files of level 1 are moved to level 0. RocksDB does not need a level between these two levels. It
      would move files from such a level down, and rewrite the files of the lowest level.

    Args:
        before: the argument of `raised`.
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
    """Return, for each state, the foreign key groups whose rows may be in the state's files, including hidden rows.

    If a file ends with a deleted range, its last key is not part of the range. The result may then have one key group
    too many.
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
    """The renaming of a file. `source` is the index of the file's database."""

    source: int
    name: str
    new_name: str


def merged(versions: Sequence[Version]) -> tuple[Version, list[Move]]:
    """Combine the states of several clean versions in one database. The first version keeps its file names.

    The files of each database get higher numbers, and later positions on level 0, than those of the previous databases.
    Families with the same name are combined.
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
