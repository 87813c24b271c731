"""References to state files of a checkpoint or savepoint, and the interfaces that write and read the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.common.folders.storage_names import checked_path

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class FileRef:
    """A file of a checkpoint. `path` is relative to the job's checkpoint root, or to the savepoint's folder.

    >>> FileRef.of_json(FileRef("shared/a", 3, "crc32:0", offset=7).to_json())
    FileRef(path='shared/a', size=3, checksum='crc32:0', offset=7)
    """

    path: str
    size: int
    checksum: str
    """`crc32:` and 8 hex digits of the content. A restore verifies the checksum."""
    offset: int | None = None
    """Start of the file in an object that holds several files. None means that the file is the whole object."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry for a handle."""
        named = {"path": self.path, "size": self.size, "checksum": self.checksum}
        return named if self.offset is None else {**named, "offset": self.offset}

    @staticmethod
    def of_json(entry: Mapping[str, Any]) -> FileRef:
        """Read an entry of a handle. The entry may have any content.

        Raises:
            SnapshotTorn: the path leads out of the folder.
            KeyError, ValueError, TypeError: another field is not in the form of `to_json`.
        """
        size, offset = int(entry["size"]), entry.get("offset")
        if size < 0 or (offset is not None and int(offset) < 0):
            raise ValueError(f"a file of {size} bytes at {offset}")
        path = checked_path(entry["path"], "a handle of state")
        return FileRef(path, size, str(entry["checksum"]), None if offset is None else int(offset))


class StateFileWriter(Protocol):
    """A writer of immutable state files, implemented by `penstock.checkpoint`. Thread-safe.

    The files are durable only after the acknowledgement of the snapshot, because small files are merged.
    """

    def write(self, content: bytes) -> FileRef: ...

    def upload(self, local_path: str) -> FileRef:
        """Upload a local file (an SST)."""
        ...


class StateFileReader(Protocol):
    """A reader of the state files of one checkpoint or savepoint. The reader verifies size and checksum.

    Raises:
        CorruptStateFile: the file is damaged. The error names the file, the expected and the found checksum.
    """

    def read(self, ref: FileRef) -> bytes: ...

    def download(self, ref: FileRef, local_path: str) -> None: ...
