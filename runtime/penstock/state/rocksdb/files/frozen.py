"""The state of a database at one moment, while the database continues to change.

RocksDB's own checkpoint flushes the memory, and writers wait for the flush. Here a snapshot has two parts.

1. The synchronous part starts a new memory table, so that the old table is flushed in the background. It links the
   existing files, and records the length of the MANIFEST and the last sequence number.
2. A separate thread then waits until that memory is flushed, and adds the resulting files.

The flushed files have only sequence numbers up to the recorded number, so they contain no later writes. An atomic flush
never combines writes from before and after the moment of the snapshot. New files of compaction are left out, because
the linked files already have their rows. The snapshot has a new MANIFEST, which names only the files of the snapshot.

Compaction may remove a tiny flushed file before it is linked. RocksDB may also start another MANIFEST, which does not
record the order of earlier events. In both cases the snapshot uses the current files of the database, which is correct
if no later data was flushed. Only a full write buffer or the next snapshot causes a later flush, and the next snapshot
waits until this snapshot is complete.

Sequence numbers show whether a later flush happened, so compaction must not set them to zero. If a row is
deleted after the snapshot, compaction must not drop the row together with its deletion. The snapshot would then lack the
row, and no sequence number would show this. `Database.hold` prevents both until the snapshot is complete.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.errors import LocalDiskError, StorageError
from penstock.state.rocksdb.files.manifest import Edit, ManifestUnreadable, Version, apply, write_version
from penstock.state.rocksdb.files.pack import CONFIG

if TYPE_CHECKING:
    from penstock.state.rocksdb.database import Database

_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.02
"""The first and the longest pause between two checks of the flush. The first pause is short, because a small flush takes milliseconds."""
_CHECK_DISK_REMEDY = "check the disk that state.backend.rocksdb.localdir is on"


class FrozenDatabase:
    """Hard links in a directory to the files of a database, and the version that these files form.

    Args:
        directory: new directory for the links. It must be on the file system of the database.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._from = Path(database.path)
        self._directory = directory
        directory.mkdir()
        self._file_pin: Any = database.hold()
        self._last_sequence = database.begin_flush()
        self._tail = database.manifest
        self._manifest, self._size = "", 0
        self._found: Future[Version] = Future()
        self._given_up = False
        try:
            self._link_all()
        except OSError as error:  # the checkpoint fails, not the task
            self._found.set_exception(
                LocalDiskError(f"RocksDB's files cannot be linked: {error}", remedy=_CHECK_DISK_REMEDY)
            )
        self._thread = threading.Thread(target=self._follow, name="penstock-freeze", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all files of the snapshot are linked, or until the snapshot has failed."""
        self._thread.join()

    def give_up(self) -> None:
        self._given_up = True
        self._thread.join()

    def finish(self) -> tuple[Version, dict[str, bytes]]:
        """Wait for the files. Return the version that they form, and the content of the small files by name.

        Raises:
            StorageError: RocksDB cannot write, or has already combined the data with later writes.
        """
        version = self._found.result()
        return version, {**write_version(version), CONFIG: (self._from / CONFIG).read_bytes()}

    def _follow(self) -> None:
        try:
            if not self._found.done():
                self._found.set_result(self._files())
        except Exception as error:  # `finish` raises the error. The database may be closed while this thread works.
            self._found.set_exception(error)
        finally:
            self._file_pin = None

    def _link_all(self) -> None:
        """Link all files of the MANIFEST. Repeat this until the MANIFEST does not change, because files come and go."""
        looked = None
        while True:
            name = self._tail.current()
            try:
                size = self._tail.size(name)
            except FileNotFoundError:
                if self._tail.current() == name:
                    raise
                continue
            if (name, size) == looked:
                self._manifest, self._size = name, size
                return
            looked = name, size
            for entry in os.scandir(self._from):
                if entry.name.endswith(".sst"):
                    self._link(entry.name)

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
            version = self._before()
            began, pause = time.monotonic(), _PAUSE_S
            while True:
                is_flushed = self._database.is_flushed()
                edits = self._later()
                if edits is None or not all(self._add(version, edit) for edit in edits):
                    version = self._now()
                if is_flushed:
                    break
                self._check_not_given_up()
                time.sleep(pause)
                if time.monotonic() - began > _LONGEST_PAUSE_S:
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        except ManifestUnreadable as error:
            raise StorageError(f"RocksDB's files cannot be identified: {error}", remedy="report this") from error
        self._check(version)
        version.last_sequence = max(version.last_sequence, self._last_sequence)
        return version

    def _before(self) -> Version:
        try:
            self._tail.read(self._manifest, self._size)
        except FileNotFoundError:
            return self._now()
        return self._tail.version.copy()

    def _later(self) -> list[Edit] | None:
        """Return the edits of the MANIFEST since the last check; None means that another MANIFEST is current."""
        if self._tail.current() == self._manifest:
            try:
                return self._tail.read(self._manifest)
            except FileNotFoundError:
                pass
        return None

    def _check_not_given_up(self) -> None:
        if self._given_up:
            raise StorageError("the snapshot was cancelled", remedy="no action is needed")

    def _add(self, version: Version, edit: Edit) -> bool:
        """Add the files of an edit if they were flushed for the snapshot.

        Return False if they are gone or also contain later writes.
        """
        flushed = edit.is_flush and edit.family in version.families
        if not flushed or min(table.smallest_sequence for table in edit.added) > self._last_sequence:
            return True
        whole = all(table.largest_sequence <= self._last_sequence for table in edit.added)
        if whole and all(self._link(table.name) for table in edit.added):
            apply(version, [edit])
            return True
        return False

    def _now(self) -> Version:
        while True:
            self._check_not_given_up()
            try:
                self._manifest = self._tail.current()
                self._tail.read(self._manifest)
            except FileNotFoundError:
                time.sleep(_PAUSE_S)
                continue
            version = self._tail.version.copy()
            if any(table.largest_sequence > self._last_sequence for table in version.all_tables()):
                raise StorageError(
                    "RocksDB compacted the files of the checkpoint with later files before the snapshot could link them",
                    remedy="no action is needed: the next checkpoint includes them. If the error repeats, raise "
                    "state.backend.rocksdb.writebuffer.size",
                )
            if all(self._link(table.name) for table in version.all_tables()):
                return version
            time.sleep(_PAUSE_S)

    def _check(self, version: Version) -> None:
        for table in version.all_tables():
            path = self._directory / table.name
            size = path.stat().st_size if path.exists() else -1
            if size != table.size:
                raise StorageError(
                    f"RocksDB's file {table.name} has {size} bytes, but its MANIFEST states {table.size} bytes",
                    remedy=_CHECK_DISK_REMEDY,
                )
