"""Parts on any other file system that fsspec reaches. Parts have a hidden name until the commit moves them.

The store only writes, moves and deletes files. So a part cannot be continued after a crash, and is closed at every
checkpoint. On some file systems, a reader can see a half-moved part. On object stores this cannot happen, because they copy an object
as a whole.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.file.sink.part_file import in_progress_name, in_progress_of
from penstock.connectors.file.sink.recoverable import FINISHED, PartStream, RecoverableStore, lost
from penstock.connectors.file.storage import StorageOptions, explained, file_system


class ObjectPart(PartStream):
    def __init__(self, fs: Any, path: str, temp: str) -> None:
        self._path = path
        self._temp = temp
        with explained(temp, "write", SinkError):
            fs.makedirs(posixpath.dirname(fs._strip_protocol(temp)), exist_ok=True)
            self._file = fs.open(temp, "wb")

    def write(self, data: bytes) -> None:
        with explained(self._temp, "write", SinkError):
            self._file.write(data)
        self.size += len(data)

    def persist(self) -> dict[str, Any]:
        """Raise an error. `resumable` is False, because the first half of an object cannot be made durable."""
        raise NotImplementedError("parts of this store are closed at every checkpoint")

    def close_for_commit(self) -> dict[str, Any]:
        with explained(self._temp, "write", SinkError):
            self._file.close()
        return {"kind": FINISHED, "path": self._path, "temp": self._temp, "size": self.size}

    def dispose(self) -> None:
        with contextlib.suppress(Exception):
            self._file.discard()


class ObjectStore(RecoverableStore):
    """A store on a file system of fsspec."""

    resumable = False

    def __init__(self, base_path: str, options: StorageOptions) -> None:
        self._fs = file_system(base_path, options)

    def open(self, directory: str, name: str) -> PartStream:
        return ObjectPart(self._fs, posixpath.join(directory, name), posixpath.join(directory, in_progress_name(name)))

    def resume(self, state: dict[str, Any], failovers: int) -> PartStream | None:
        raise lost(state["path"], "this store cannot continue parts")

    def commit(self, committable: dict[str, Any]) -> None:
        path, temp, size = committable["path"], committable["temp"], committable["size"]
        with explained(path, "commit", SinkError):
            self._fs.invalidate_cache()
            if self._size_of(path) == size:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(temp)
                return
            if self._size_of(temp) != size:
                raise SinkError(
                    f"cannot commit {path!r}: neither it nor {temp!r} has the {size} bytes that were written",
                    remedy="check whether a cleanup or another job has changed files of the sink",
                )
            self._fs.mv(temp, path)

    def abort(self, committable: dict[str, Any]) -> None:
        with explained(committable["temp"], "remove", SinkError), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(committable["temp"])

    def discard_unreferenced(
        self, base_path: str, owner: str, keep: list[dict[str, Any]], below: int | None = None
    ) -> None:
        strip = self._fs._strip_protocol
        kept = {strip(piece["temp"]) for piece in keep if "temp" in piece}
        ours = in_progress_of(owner, below)
        with explained(base_path, "clean up", SinkError):
            self._fs.invalidate_cache()
            if not self._fs.exists(base_path):
                return
            for path in self._fs.find(base_path):
                if ours(posixpath.basename(path)) and path not in kept:
                    with contextlib.suppress(FileNotFoundError):
                        self._fs.rm_file(path)

    def _size_of(self, path: str) -> int:
        try:
            return int(self._fs.info(path)["size"])
        except FileNotFoundError:
            return -1
