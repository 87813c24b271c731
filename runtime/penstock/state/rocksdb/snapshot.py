"""The upload of a RocksDB snapshot: new SST files, and the small files in one file.

SST files are immutable, and a database never uses a name twice. If a file has the same name as a file of the last
confirmed checkpoint, it therefore also has the same content. The small files that name the SST files are packed into
one file. Options are not stored, because the backend sets them.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.state.hashmap.snapshot import FORMAT, FORMAT_WITH_ORIGINS
from penstock.state.local_disk import writing
from penstock.state.rocksdb.files.pack import BACKEND, PACK

if TYPE_CHECKING:
    from penstock.state.files import FileRef, StateFileWriter
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.rocksdb.files.frozen import FrozenDatabase
    from penstock.state.snapshot_format.segment import StateInfo


@dataclass(frozen=True)
class SnapshotFacts:
    """Data for the upload: `threads` (number of upload threads), and the fields of the handle other than files.

    `number`: number of the last list element. `origins`: states whose rows have different descriptions
    (`origins.to_json`).
    """

    groups: KeyGroupRange
    max_parallelism: int
    threads: int
    key_schema: dict[str, Any]
    states: dict[str, StateInfo]
    number: int
    origins: dict[str, Any]


class RocksDBUpload:
    """The `SnapshotUpload` of a directory with hard links.

    Args:
        frozen: content of the directory.
        directory: directory with the links. It is removed at the end of the upload, or when the checkpoint is
            abandoned.
        confirmed: SST files of the last confirmed checkpoint, by name.
    """

    def __init__(
        self, frozen: FrozenDatabase, directory: Path, facts: SnapshotFacts, confirmed: dict[str, FileRef]
    ) -> None:
        self.files: dict[str, FileRef] | None = None
        """SST files by name; None until the upload is done."""
        self._frozen = frozen
        self._directory = directory
        self._facts = facts
        self._confirmed = confirmed
        self._busy = threading.Lock()

    def wait(self) -> None:
        """Wait until the database may be frozen again."""
        self._frozen.wait()

    def run(self, writer: StateFileWriter) -> dict[str, Any]:
        with self._busy:
            try:
                return self._run(writer)
            finally:
                shutil.rmtree(self._directory, ignore_errors=True)

    def _run(self, writer: StateFileWriter) -> dict[str, Any]:
        tables: dict[str, FileRef] = {}
        new: list[str] = []
        with writing(self._directory):
            version, small = self._frozen.finish()
        for name in sorted(table.name for table in version.all_tables()):
            known = self._confirmed.get(name)
            if known is None:
                new.append(str(self._directory / name))
            else:
                tables[name] = known
        with ThreadPoolExecutor(self._facts.threads) as pool:
            for local, ref in zip(new, pool.map(writer.upload, new), strict=True):
                tables[Path(local).name] = ref
        uploaded = sum(tables[Path(local).name].size for local in new)
        pack = writer.write(msgspec.msgpack.encode(small))
        self.files = tables
        facts = self._facts
        return {
            "backend": BACKEND,
            "format": FORMAT_WITH_ORIGINS if facts.origins else FORMAT,
            "key_groups": [facts.groups.start, facts.groups.end],
            "max_parallelism": facts.max_parallelism,
            "key_schema": facts.key_schema,
            "files": [_entry(name, ref) for name, ref in ((PACK, pack), *tables.items())],
            "states": {name: msgspec.to_builtins(info) for name, info in facts.states.items()},
            "number": facts.number,
            **({"origins": facts.origins} if facts.origins else {}),
            "bytes_uploaded": uploaded + pack.size,
        }

    def discard(self) -> None:
        """Discard the abandoned checkpoint. An upload that is still running removes the directory itself."""
        self._frozen.give_up()
        if self._busy.acquire(blocking=False):
            shutil.rmtree(self._directory, ignore_errors=True)
            self._busy.release()


def _entry(name: str, ref: FileRef) -> dict[str, Any]:
    return {"name": name, **ref.to_json()}
