"""What a database was at a moment, while it goes on changing.

RocksDB's own checkpoint flushes what is in memory, and whoever writes waits for that. Here a snapshot has two parts. The synchronous one
lets memory begin anew (what is in it is flushed in the background), links the files that are there, and notes how far the MANIFEST has
got and which sequence number was the last. Then a thread of its own waits until that memory is flushed and adds the files which that
made: all of it has sequence numbers up to the last one, so later writes are in none of them (atomic flushes never put memory
from before and after together). What compaction makes meanwhile is left out: it holds the same rows in other files. The MANIFEST of the snapshot
is written anew and names these files only.

Compaction may take a flushed file away before it is linked, if files are tiny; or RocksDB begins another MANIFEST, which does not say what came when.
Then the files of now will do, as long as nothing later has been flushed, which takes a whole write buffer or the next snapshot; that one waits for this.
Sequence numbers tell: until then compaction is held from setting them to zero, and from dropping a row together with a later deletion of it.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StorageError
from penstock.state.rocksdb.files.manifest import Edit, ManifestUnreadable, Version, apply, write_version

if TYPE_CHECKING:
    from penstock.state.rocksdb.database import Database

CONFIG = "rocksdict-config.json"
"""Says that keys are plain bytes; the binding reads it when it opens a database."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.02
"""Between two looks: at first, as a small flush takes milliseconds; and after a while."""
_LOOK_AT_DISK = "check the disk that state.backend.rocksdb.localdir is on"


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
        self._held: Any = database.hold()
        self._last_sequence = database.begin_flush()
        self._tail = database.manifest
        self._manifest, self._size = "", 0
        self._found: Future[Version] = Future()
        self._given_up = False
        try:
            self._link_all()
        except OSError as error:  # the checkpoint fails, not the task
            self._found.set_exception(StorageError(f"RocksDB's files cannot be linked: {error}", remedy=_LOOK_AT_DISK))
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
            if not self._found.done():
                self._found.set_result(self._files())
        except Exception as error:  # belongs to whoever asks for the files; the database may be closed meanwhile
            self._found.set_exception(error)
        finally:
            self._held = None

    def _link_all(self) -> None:
        """Files come and go meanwhile; once the MANIFEST has not changed between two looks, all that it names is there."""
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
                self._check_wanted()
                time.sleep(pause)
                if time.monotonic() - began > _LONGEST_PAUSE_S:
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
        except ManifestUnreadable as error:
            raise StorageError(f"RocksDB's files cannot be told apart: {error}", remedy="report this") from error
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
        """What came since the last look; None: that is not known."""
        if self._tail.current() == self._manifest:
            try:
                return self._tail.read(self._manifest)
            except FileNotFoundError:
                pass
        return None

    def _check_wanted(self) -> None:
        if self._given_up:
            raise StorageError("the snapshot was given up", remedy="none is needed")

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

    def _now(self) -> Version:
        while True:
            self._check_wanted()
            try:
                self._manifest = self._tail.current()
                self._tail.read(self._manifest)
            except FileNotFoundError:
                time.sleep(_PAUSE_S)
                continue
            version = self._tail.version.copy()
            if any(table.largest_sequence > self._last_sequence for table in version.all_tables()):
                raise StorageError(
                    "the files of the checkpoint's barrier were put together with later ones before they were linked",
                    remedy="none is needed: the next checkpoint has them; if it comes again, raise "
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
                    f"RocksDB's file {table.name} has {size} bytes, and {table.size} are named",
                    remedy=_LOOK_AT_DISK,
                )
