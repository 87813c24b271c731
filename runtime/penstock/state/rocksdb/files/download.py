"""Download of a RocksDB snapshot's files: all of them, or those that a range of key groups needs."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.common.errors import CorruptStateFile
from penstock.state.decoding import decoding
from penstock.state.files import FileRef
from penstock.state.hashmap.reading import READ_THREADS
from penstock.state.rocksdb.files.manifest import Version, read_version, write_version
from penstock.state.rocksdb.files.pack import (
    CONFIG,
    CONFIG_CONTENT,
    PACK,
    checked_table_name,
    decode_pack,
    manifest_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.state.files import StateFileReader


@dataclass(frozen=True)
class StoredDatabase:
    """The files that a handle names.

    Args:
        files: SST files by name.
        small: content of the other files by name.
    """

    files: dict[str, FileRef]
    small: dict[str, bytes]

    @staticmethod
    def of(handle: dict[str, Any], reader: StateFileReader) -> StoredDatabase:
        """Read the files of a handle. Check every name before it can become a path.

        Raises:
            CorruptStateFile: the handle has no readable pack.
            SnapshotTorn: a name is not the name of a RocksDB file.
        """
        with decoding("the handle of a RocksDB snapshot"):
            files = {entry["name"]: FileRef.of_json(entry) for entry in handle["files"]}
            pack = files.pop(PACK)
        for name in files:
            checked_table_name(name, "the handle of a RocksDB snapshot")
        return StoredDatabase(files, decode_pack(reader.read(pack), f"state file {pack.path}"))

    def version(self) -> Version:
        """Return the version of the stored MANIFEST.

        Raises:
            ManifestUnreadable: the MANIFEST has an unknown field or is cut off.
        """
        return read_version(manifest_of(self.small))

    def fetch(self, version: Version, directory: Path, reader: StateFileReader, threads: int) -> dict[str, FileRef]:
        """Download the files of a version to a directory, as a database.

        Returns:
            The downloaded SST files by name.

        Raises:
            CorruptStateFile: a file of the snapshot is damaged.
        """
        chosen = {}
        for table in version.all_tables():
            if table.name not in self.files:
                raise CorruptStateFile(
                    f"the MANIFEST of a RocksDB snapshot names {table.name}, which its handle does not have",
                    remedy="restore another checkpoint or savepoint by naming its path",
                )
            chosen[table.name] = self.files[table.name]
        _fill(directory, chosen, write_version(version), reader, threads)
        return chosen

    def fetch_all(self, directory: Path, reader: StateFileReader, threads: int) -> dict[str, FileRef]:
        """Download all files unchanged.

        Raises:
            CorruptStateFile: a file of the snapshot is damaged.
        """
        manifest = {name: content for name, content in self.small.items() if name != CONFIG}
        _fill(directory, self.files, manifest, reader, threads)
        return self.files


def download(
    handle: dict[str, Any], directory: Path, reader: StateFileReader, threads: int = READ_THREADS
) -> dict[str, FileRef]:
    """Download the files of a RocksDB snapshot to a directory, unchanged.

    Returns:
        The SST files by name.

    Raises:
        CorruptStateFile: a file of the snapshot is damaged.
    """
    return StoredDatabase.of(handle, reader).fetch_all(directory, reader, threads)


def _fill(
    directory: Path, files: dict[str, FileRef], small: dict[str, bytes], reader: StateFileReader, threads: int
) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)  # it holds state, and its parent may be readable for all users
    for name, content in {**small, CONFIG: CONFIG_CONTENT}.items():
        (directory / name).write_bytes(content)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda item: reader.download(item[1], str(directory / item[0])), files.items()))
