"""Bytes by offset: of local files, of objects, and of the content of compressed files.

A compressed file is read from its beginning. To reach an offset, everything before it is decompressed again.
"""

from __future__ import annotations

import bz2
import contextlib
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import RecordFormatError, SourceError
from penstock.connectors.file.storage import Storage, explained

if TYPE_CHECKING:
    from penstock.connectors.file.source.enumerator import FileRange

CODECS = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".br": "brotli",
    ".lz4": "lz4",
}
_REMOTE_CHUNK = 2 << 20
_INFLATED_CHUNK = 1 << 20


def codec_of(path: str) -> str | None:
    """Return the compression that a file's name indicates, or None.
    >>> codec_of("s3://b/day.csv.gz"), codec_of("day.csv")
    ('gzip', None)
    """
    return CODECS.get(os.path.splitext(path)[1].lower())


class ByteSource(ABC):
    """The content of a file. `release` frees handles and buffers, and the next read opens them again."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end."""

    @abstractmethod
    def release(self) -> None: ...

    def remaining(self, offset: int) -> int | None:
        """Return the number of bytes after an offset, or None if unknown."""
        return None


class LocalBytes(ByteSource):
    def __init__(self, part: FileRange) -> None:
        self._part = part
        self._fd = -1

    def read_at(self, offset: int, size: int) -> bytes:
        part = self._part
        wanted = min(size, part.size - offset)
        if wanted <= 0:
            return b""
        if self._fd < 0:
            with explained(part.path, "read"):
                self._fd = os.open(part.path, os.O_RDONLY)
        data = os.pread(self._fd, wanted, offset)
        while len(data) < wanted:
            more = os.pread(self._fd, wanted - len(data), offset + len(data))
            if not more:
                raise _shrunk(part, offset + len(data))
            data += more
        return data

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remaining(self, offset: int) -> int:
        return max(0, self._part.size - offset)


class _Buffered(ByteSource):
    """A source that reads large pieces and keeps the bytes after the last requested offset."""

    _seekable = False
    """Whether a fetch can begin at any offset. If False, everything before the offset must be read."""

    def __init__(self) -> None:
        self._base = 0
        self._buffer = b""

    def read_at(self, offset: int, size: int) -> bytes:
        if offset < self._base:
            self.release()
        pieces: list[bytes] = [self._buffer]
        have = self._base + len(self._buffer)
        if offset > have and self._seekable:
            pieces, have = [], offset
            self._base = offset
        while have < offset + size:
            more = self._fetch(have)
            if not more:
                break
            have += len(more)
            if have <= offset:
                pieces, self._base = [], have
            else:
                pieces.append(more)
        content = b"".join(pieces)
        self._buffer = content[offset - self._base :] if have > offset else b""
        self._base = min(offset, have)
        return self._buffer[:size]

    @abstractmethod
    def _fetch(self, offset: int) -> bytes:
        """Return some bytes from `offset` on, or no bytes at the end. If `_seekable` is False, `offset` is the end of the last fetch."""

    def release(self) -> None:
        self._base, self._buffer = 0, b""


class RemoteBytes(_Buffered):
    """The bytes of an object, read by ranges."""

    _seekable = True

    def __init__(self, part: FileRange, storage: Storage) -> None:
        super().__init__()
        self._part = part
        self._storage = storage
        self._checked = False

    def _fetch(self, offset: int) -> bytes:
        part = self._part
        if not self._checked:
            check_unchanged(part, self._storage)
            self._checked = True
        end = min(part.size, offset + _REMOTE_CHUNK)
        if end <= offset:
            return b""
        data = self._storage.read_range(part.path, offset, end)
        if len(data) < end - offset:
            raise _shrunk(part, offset + len(data))
        return data

    def remaining(self, offset: int) -> int:
        return max(0, self._part.size - offset)


class InflatedBytes(_Buffered):
    """The content of a compressed file, read from its beginning to its end."""

    def __init__(self, part: FileRange, storage: Storage, codec: str) -> None:
        super().__init__()
        self._part = part
        self._storage = storage
        self._codec = codec
        self._raw: Any = None
        self._stream: Any = None

    def _fetch(self, offset: int) -> bytes:
        if self._stream is None:
            self._open()
        try:
            return bytes(self._stream.read(_INFLATED_CHUNK))
        except (OSError, EOFError, pa.ArrowException) as error:
            raise RecordFormatError(
                f"cannot decompress {self._part.path!r} as {self._codec}, at byte {offset} of its content: {error}",
                remedy="replace the file, because it is damaged or incomplete",
            ) from error

    def _open(self) -> None:
        check_unchanged(self._part, self._storage)
        self._raw = self._storage.open(self._part.path)
        if self._codec == "bz2":
            self._stream = bz2.BZ2File(self._raw)
        else:
            self._stream = pa.CompressedInputStream(pa.PythonFile(self._raw, "r"), self._codec)

    def release(self) -> None:
        super().release()
        if self._stream is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._stream.close()
            self._raw.close()
            self._stream = self._raw = None

    def remaining(self, offset: int) -> int | None:
        return None if self._raw is None else max(0, self._part.size - int(self._raw.tell()))


def bytes_of(part: FileRange, storage: Storage) -> ByteSource:
    """Return the content of the file that contains a split."""
    codec = codec_of(part.path)
    if codec is not None:
        return InflatedBytes(part, storage, codec)
    return LocalBytes(part) if storage.local else RemoteBytes(part, storage)


def check_unchanged(part: FileRange, storage: Storage) -> None:
    """Check that the listed content of a file still exists. A local file may have grown since the listing.

    Raises:
        SourceError: the file was replaced or cut.
    """
    now = storage.stat(part.path)
    same = now.size >= part.size if storage.local else (now.size == part.size and now.version == part.version)
    if not same:
        raise SourceError(
            f"{part.path!r} was replaced before it was read: it had {part.size} bytes when it was listed, and has {now.size} now",
            remedy="write new data under new names, and move files into the directory when they are complete",
        )


def _shrunk(part: FileRange, end: int) -> SourceError:
    return SourceError(
        f"{part.path!r} ends at byte {end}, but had {part.size} bytes when it was listed: it was truncated or replaced while the job read it",
        remedy="write new data under new names",
    )
