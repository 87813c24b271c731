"""One database of the files of several, on disk (which files, and under which names, is `assembly`'s to say)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.state.rocksdb.assembly import is_clean, merged, outside, states_only
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.frozen import CONFIG
from penstock.state.rocksdb.manifest import Version, read_version, write_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from penstock.state.backend import FileRef, KeyGroupRange


@dataclass
class Part:
    """A database that was fetched, and what is wanted of it.

    Args:
        files: its SST files that lie in storage, by name.
        groups: key groups whose rows are taken from here.
    """

    directory: Path
    version: Version
    files: dict[str, FileRef]
    groups: KeyGroupRange

    def clip(self, settings: Mapping[str, Any]) -> bool:
        """Have RocksDB write anew what reaches beyond the key groups; whether nothing does then."""
        if is_clean(self.version, self.groups):
            return True
        database = Database(str(self.directory), settings, compacts=False)
        try:
            foreign = outside(self.version, self.groups)
            database.hide(foreign)
            database.compact(foreign)
        finally:
            database.close()
        self.version = read_version((self.directory / (self.directory / "CURRENT").read_text().strip()).read_bytes())
        there = {table.name for table in self.version.all_tables()}
        self.files = {name: ref for name, ref in self.files.items() if name in there}
        return is_clean(self.version, self.groups)


def put_together(parts: Sequence[Part], target: Path) -> dict[str, FileRef]:
    """Move the files of states into a new directory with a database of all of them.

    Returns:
        Those that lie in storage, by their new names.
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
    small = {**write_version(whole), CONFIG: (parts[0].directory / CONFIG).read_bytes()}
    for name, content in small.items():
        (target / name).write_bytes(content)
    return stored
