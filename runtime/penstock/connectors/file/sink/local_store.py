"""Parts on a local (or mounted) file system: hidden files that a hard link under the final name makes visible.

The creation of a link is atomic, and it never replaces a file. So the commit is atomic, and a conflict becomes an error.
On a file system without links, the store renames the file. To continue a part, the store copies its durable bytes into
a new file, which then replaces the old file. A zombie that still has the old file open writes into a deleted file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.file.sink.part_file import in_progress_name, in_progress_of
from penstock.connectors.file.sink.recoverable import FINISHED, PartStream, RecoverableStore, lost
from penstock.connectors.file.storage import explained, local_path

_BUFFER = 64 << 10
_COPY = 1 << 20
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class LocalPart(PartStream):
    """A part in a local file. `mode` is "xb" for a new file, "ab" for an existing file with this `size` and `checksum`."""

    def __init__(self, path: str, temp: str, mode: str = "xb", size: int = 0, checksum: int = 0) -> None:
        self._path = path
        self._temp = temp
        self.size = size
        self._checksum = checksum
        self._listed = False
        with explained(temp, "write", SinkError):
            os.makedirs(os.path.dirname(temp), exist_ok=True)
            self._file = open(temp, mode, buffering=_BUFFER)  # noqa: SIM115 - closed by dispose

    def write(self, data: bytes) -> None:
        with explained(self._temp, "write", SinkError):
            self._file.write(data)
        self.size += len(data)
        self._checksum = zlib.crc32(data, self._checksum)

    def persist(self) -> dict[str, Any]:
        with explained(self._temp, "write", SinkError):
            self._file.flush()
            os.fsync(self._file.fileno())
            if not self._listed:
                _sync_directory(os.path.dirname(self._temp))
                self._listed = True
        return {"path": self._path, "temp": self._temp, "size": self.size, "crc32": self._checksum}

    def close_for_commit(self) -> dict[str, Any]:
        state = self.persist()
        self._file.close()
        return {"kind": FINISHED, "path": state["path"], "temp": state["temp"], "size": state["size"]}

    def dispose(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


class LocalStore(RecoverableStore):
    """A store on the local file system."""

    def open(self, directory: str, name: str) -> PartStream:
        directory = local_path(directory)
        return LocalPart(os.path.join(directory, name), os.path.join(directory, in_progress_name(name)))

    def resume(self, state: dict[str, Any], failovers: int) -> PartStream | None:
        path, temp, size = state["path"], state["temp"], state["size"]
        if _size_of(path) >= size:
            return None
        resumed = f"{temp}.resumed"
        with explained(temp, "restore", SinkError):
            if _size_of(temp) < size:
                raise lost(path, f"{temp!r} has {max(0, _size_of(temp))} bytes, the checkpoint has {size}")
            checksum = _copy_head(temp, resumed, size)
            if checksum != state["crc32"]:
                os.unlink(resumed)
                raise lost(path, f"the first {size} bytes of {temp!r} are not those of the checkpoint")
            os.replace(resumed, temp)
            _sync_directory(os.path.dirname(temp))
        return LocalPart(path, temp, "ab", size, checksum)

    def commit(self, committable: dict[str, Any]) -> None:
        path, temp, size = committable["path"], committable["temp"], committable["size"]
        with explained(path, "commit", SinkError):
            if _size_of(temp) >= 0:
                _publish(temp, path)
            if _size_of(path) != size:
                raise SinkError(
                    f"cannot commit {path!r}: it has {_size_of(path)} bytes, but the job wrote {size}"
                    if _size_of(path) >= 0
                    else f"cannot commit {path!r}: neither it nor {temp!r} exists",
                    remedy="check whether a cleanup or another job has changed files of the sink",
                )
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temp)
            _sync_directory(os.path.dirname(path))

    def abort(self, committable: dict[str, Any]) -> None:
        with explained(committable["temp"], "remove", SinkError), contextlib.suppress(FileNotFoundError):
            os.unlink(committable["temp"])

    def discard_unreferenced(
        self, base_path: str, owner: str, keep: list[dict[str, Any]], below: int | None = None
    ) -> None:
        kept = {piece["temp"] for piece in keep if "temp" in piece}
        ours = in_progress_of(owner, below)
        with explained(base_path, "clean up", SinkError):
            for parent, _, names in os.walk(local_path(base_path)):
                for name in names:
                    path = os.path.join(parent, name)
                    if ours(name) and path not in kept:
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(path)


def _publish(temp: str, path: str) -> None:
    try:
        os.link(temp, path)
    except FileExistsError:
        pass  # committed before; the caller compares sizes
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not os.path.exists(path):
            os.rename(temp, path)


def _size_of(path: str) -> int:
    """Return the size of a file in bytes, or -1 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


def _copy_head(source: str, target: str, size: int) -> int:
    """Copy the first bytes into a new, durable file. Return their CRC-32."""
    checksum = 0
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while size:
            data = reader.read(min(size, _COPY))
            if not data:
                break
            writer.write(data)
            checksum = zlib.crc32(data, checksum)
            size -= len(data)
        writer.flush()
        os.fsync(writer.fileno())
    return checksum


def _sync_directory(directory: str) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
