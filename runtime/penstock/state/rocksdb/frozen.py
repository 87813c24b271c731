"""What a database was at a moment, while it goes on changing.

RocksDB's own checkpoint flushes what is in memory, and whoever writes waits for that. Here a snapshot has two parts. The synchronous one
lets memory begin anew (what is in it is flushed in the background), links the files that are there, and notes how far the MANIFEST has
got and which sequence number was the last. Then a thread of its own waits until that memory is flushed and adds the files which that
made: all of it has sequence numbers up to the last one, so later writes are in none of them (atomic flushes never put memory
from before and after together). What compaction makes meanwhile is left out: it holds the same rows in other files. The MANIFEST of the snapshot
is written anew and names these files only.

Compaction may take a flushed file away before it is linked, if files are tiny. Then the files of now will do, as long as nothing later has been
flushed, which takes a whole write buffer or the next snapshot; that one waits for this.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.common.errors import StorageError
from penstock.state.rocksdb.manifest import Edit, ManifestUnreadable, Version, apply, read_edits, write_version

if TYPE_CHECKING:
    from penstock.state.rocksdb.database import Database

CONFIG = "rocksdict-config.json"
"""Says that keys are plain bytes; the binding reads it when it opens a database."""
_PAUSE_S = 0.002


class FrozenDatabase:
    """Hard links of a database's files in a directory, and what they are.

    Args:
        directory: made; on the file system of the database.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._from = Path(database.path)
        self._directory = directory
        directory.mkdir()
        self._last_sequence = database.begin_flush()
        self._manifest, self._size = self._link_all()
        self._found: Future[Version] = Future()
        self._given_up = False
        self._thread = threading.Thread(target=self._follow, name="penstock-freeze", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until all files of the moment are there, or it has failed."""
        self._thread.join()

    def give_up(self) -> None:
        self._given_up = True
        self._thread.join()

    def finish(self) -> tuple[Version, dict[str, bytes]]:
        """Wait for the files; returns those there are, and the small ones beside them by name.

        Raises:
            StorageError: RocksDB cannot write, or went on so fast that the moment is lost.
        """
        version = self._found.result()
        return version, {**write_version(version), CONFIG: (self._from / CONFIG).read_bytes()}

    def _follow(self) -> None:
        try:
            self._found.set_result(self._files())
        except Exception as error:  # belongs to whoever asks for the files; the database may be closed meanwhile
            self._found.set_exception(error)

    def _link_all(self) -> tuple[Path, int]:
        """Files come and go meanwhile; once the MANIFEST has not changed between two looks, all that it names is there."""
        while True:
            manifest = self._from / (self._from / "CURRENT").read_text().strip()
            size = manifest.stat().st_size
            for entry in os.scandir(self._from):
                if entry.name.endswith(".sst"):
                    self._link(entry.name)
            if manifest.stat().st_size == size:
                return manifest, size

    def _link(self, name: str) -> bool:
        try:
            os.link(self._from / name, self._directory / name)
        except FileExistsError:
            return True
        except FileNotFoundError:
            return False
        return True

    def _files(self) -> Version:
        try:
            version, known = self._before()
            while True:
                is_flushed = self._database.is_flushed()
                edits = self._edits()
                if not all(self._add(version, edit) for edit in edits[known:]):
                    version, edits = self._now()
                known = len(edits)
                if is_flushed:
                    break
                if self._given_up:
                    raise StorageError("the snapshot was given up", remedy="none is needed")
                time.sleep(_PAUSE_S)
        except ManifestUnreadable as error:
            raise StorageError(f"RocksDB's files cannot be told apart: {error}", remedy="report this") from error
        self._check(version)
        version.last_sequence = max(version.last_sequence, self._last_sequence)
        return version

    def _before(self) -> tuple[Version, int]:
        edits = read_edits(self._manifest.read_bytes()[: self._size])
        return apply(Version(), edits), len(edits)

    def _add(self, version: Version, edit: Edit) -> bool:
        """Take what was flushed; whether that was still there."""
        flushed = edit.is_flush and edit.family in version.families
        if not flushed or min(table.smallest_sequence for table in edit.added) > self._last_sequence:
            return True
        whole = all(table.largest_sequence <= self._last_sequence for table in edit.added)
        if whole and all(self._link(table.name) for table in edit.added):
            apply(version, [edit])
            return True
        return False

    def _now(self) -> tuple[Version, list[Edit]]:
        while True:
            edits = self._edits()
            version = apply(Version(), edits)
            if any(table.largest_sequence > self._last_sequence for table in version.all_tables()):
                raise StorageError(
                    "the files of the checkpoint's barrier were put together with later ones before they were linked",
                    remedy="none is needed: the next checkpoint has them; if it comes again, raise "
                    "state.backend.rocksdb.writebuffer.size",
                )
            if all(self._link(table.name) for table in version.all_tables()):
                return version, edits

    def _edits(self) -> list[Edit]:
        return read_edits(self._manifest.read_bytes())

    def _check(self, version: Version) -> None:
        for table in version.all_tables():
            path = self._directory / table.name
            size = path.stat().st_size if path.exists() else -1
            if size != table.size:
                raise StorageError(
                    f"RocksDB's file {table.name} has {size} bytes, and {table.size} are named",
                    remedy="check the disk that state.backend.rocksdb.localdir is on",
                )
