"""Files of a RocksDB snapshot, fetched: all of them, or those that a range of key groups needs."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.state.backend import FileRef
from penstock.state.hashmap.reading import READ_THREADS
from penstock.state.rocksdb.files.manifest import Version, read_version, write_version
from penstock.state.rocksdb.snapshot import PACK

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.state.backend import StateFileReader

_CURRENT = "CURRENT"
_MANIFEST = "MANIFEST-"


@dataclass(frozen=True)
class StoredDatabase:
    """What a handle names.

    Args:
        files: SST files by name.
        small: content of the others by name.
    """

    files: dict[str, FileRef]
    small: dict[str, bytes]

    @staticmethod
    def of(handle: dict[str, Any], reader: StateFileReader) -> StoredDatabase:
        """
        Raises:
            CorruptStateFile.
        """
        files = {entry["name"]: FileRef.of_json(entry) for entry in handle["files"]}
        return StoredDatabase(files, msgspec.msgpack.decode(reader.read(files.pop(PACK)), type=dict[str, bytes]))

    def version(self) -> Version:
        """
        Raises:
            ManifestUnreadable.
        """
        return read_version(self.small[self.small[_CURRENT].decode().strip()])

    def fetch(self, version: Version, directory: Path, reader: StateFileReader, threads: int) -> dict[str, FileRef]:
        """A directory with a database of some of the files.

        Returns:
            These files by name.

        Raises:
            CorruptStateFile.
        """
        chosen = {table.name: self.files[table.name] for table in version.all_tables()}
        others = {
            name: data for name, data in self.small.items() if name != _CURRENT and not name.startswith(_MANIFEST)
        }
        _fill(directory, chosen, {**others, **write_version(version)}, reader, threads)
        return chosen

    def fetch_all(self, directory: Path, reader: StateFileReader, threads: int) -> dict[str, FileRef]:
        """As RocksDB left them.

        Raises:
            CorruptStateFile.
        """
        _fill(directory, self.files, self.small, reader, threads)
        return self.files


def download(
    handle: dict[str, Any], directory: Path, reader: StateFileReader, threads: int = READ_THREADS
) -> dict[str, FileRef]:
    """Put the files of a RocksDB snapshot into a directory, as RocksDB left them.

    Returns:
        The SST files by name.

    Raises:
        CorruptStateFile.
    """
    return StoredDatabase.of(handle, reader).fetch_all(directory, reader, threads)


def _fill(
    directory: Path, files: dict[str, FileRef], small: dict[str, bytes], reader: StateFileReader, threads: int
) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, content in small.items():
        (directory / name).write_bytes(content)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda item: reader.download(item[1], str(directory / item[0])), files.items()))
