"""The combination of several databases' files on disk.

`assembly` decides which files are combined and how they are named.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.files.assembly import divided, is_clean, merged, outside, raised, settled, states_only
from penstock.state.rocksdb.files.manifest import Version, read_version, write_version
from penstock.state.rocksdb.files.pack import CONFIG, CONFIG_CONTENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from penstock.state.files import FileRef
    from penstock.state.key_groups import KeyGroupRange


@dataclass
class Part:
    """A fetched database and the part of it that is needed.

    Args:
        files: SST files that are in storage, by name.
        groups: key groups whose rows this part provides.
    """

    directory: Path
    version: Version
    files: dict[str, FileRef]
    groups: KeyGroupRange

    def clip(self, settings: Mapping[str, Any]) -> bool:
        """Let RocksDB rewrite the files of states that extend beyond the key groups.

        Return whether all files are then inside the key groups.
        """
        if is_clean(self.version, self.groups):
            return True
        edges, rest = divided(states_only(self.version), self.groups)
        if any(edges.all_tables()):
            rest = self._with_edges(edges, rest, settings)
        if not is_clean(rest, self.groups):
            _write(self.directory, raised(rest))
            rest = settled(_rewritten(self.directory, settings, outside(rest, self.groups), one_step=True), rest)
        self.version = rest
        names = {table.name for table in rest.all_tables()}
        self.files = {name: ref for name, ref in self.files.items() if name in names}
        return is_clean(rest, self.groups)

    def _with_edges(self, edges: Version, rest: Version, settings: Mapping[str, Any]) -> Version:
        below = self.directory / "edges"
        below.mkdir()
        for table in edges.all_tables():
            os.rename(self.directory / table.name, below / table.name)
        shutil.copy(self.directory / CONFIG, below)
        _write(below, edges)
        foreign = outside(edges, self.groups)
        whole, moves = merged([rest, _rewritten(below, settings, foreign, one_step=False)])
        for move in moves:
            if move.source:
                os.rename(below / move.name, self.directory / move.new_name)
        shutil.rmtree(below)
        return whole


def _write(directory: Path, version: Version) -> None:
    for name, content in write_version(version).items():
        (directory / name).write_bytes(content)


def _rewritten(
    directory: Path, settings: Mapping[str, Any], foreign: Mapping[str, Sequence[KeyGroupRange]], *, one_step: bool
) -> Version:
    """Rewrite the files without the foreign key groups, and return the version.

    Args:
        foreign: for each state, the foreign key groups that its files may contain. Do not add other key groups: a
            deletion that covers no rows would remain in a separate file.
        one_step: if true, the files of level 0 are moved to level 1. Otherwise all files with rows of the foreign key
            groups are moved to the lowest level.
    """
    database = Database(str(directory), settings, compacts=False, one_step=one_step)
    try:
        database.hide(foreign)
        if one_step:
            database.step_down()
        else:
            database.compact(foreign)
    finally:
        database.close()
    return read_version((directory / (directory / "CURRENT").read_text().strip()).read_bytes())


def combine_databases(parts: Sequence[Part], target: Path) -> dict[str, FileRef]:
    """Move the files of states to a new directory, as one database.

    Returns:
        The files that are in storage, by their new names.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    whole, moves = merged([states_only(part.version) for part in parts])
    stored: dict[str, FileRef] = {}
    for move in moves:
        part = parts[move.source]
        os.rename(part.directory / move.name, target / move.new_name)
        if move.name in part.files:
            stored[move.new_name] = part.files[move.name]
    small = {**write_version(whole), CONFIG: CONFIG_CONTENT}
    for name, content in small.items():
        (target / name).write_bytes(content)
    return stored
