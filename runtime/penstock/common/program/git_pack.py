"""The objects in a pack, the format in which git transfers commits.

See https://git-scm.com/docs/gitformat-pack. A damaged pack raises ValueError.
"""

from __future__ import annotations

import hashlib
import mmap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_OBJECT_BYTES = 64 << 20
"""Maximum size of one file."""
MAX_OBJECTS = 500_000
_MAX_CHAIN = 4096
_TYPES = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFFSET_DELTA, _ID_DELTA = 6, 7
_CHUNK = 16 << 10
_HEADER, _CHECKSUM = 12, 20


@dataclass(frozen=True)
class TreeEntry:
    """A file or a folder in a tree."""

    mode: int
    name: str
    id: str


@dataclass(frozen=True)
class _Object:
    """The place of one object in a pack."""

    kind: str | None
    """The type, or None for a delta."""
    size: int
    start: int
    """Position of the object's compressed content."""
    base: int | str | None = None
    """Position or id of the object that a delta changes."""


class Pack:
    """A pack in a file. It reads all objects once to compute their ids, and keeps only their positions."""

    def __init__(self, file: BinaryIO) -> None:
        file.flush()
        if file.seek(0, 2) < _HEADER + _CHECKSUM:
            raise ValueError("the pack is empty")
        self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._objects: dict[int, _Object] = {}
        self._positions: dict[str, int] = {}
        self._read_all()

    def __enter__(self) -> Pack:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()

    def tree_of_commit(self, commit: str) -> str:
        """Return the id of the root folder of a commit."""
        first = self.content(commit, "commit").split(b"\n", 1)[0]
        if not first.startswith(b"tree "):
            raise ValueError(f"commit {commit} has no tree")
        return first[5:].decode()

    def entries(self, tree: str) -> Iterator[TreeEntry]:
        """Yield the files and folders of a tree."""
        content, at = self.content(tree, "tree"), 0
        while at < len(content):
            space, end = content.index(b" ", at), content.index(b"\0", at)
            name = content[space + 1 : end].decode(errors="backslashreplace")
            yield TreeEntry(int(content[at:space], 8), name, content[end + 1 : end + 21].hex())
            at = end + 21

    def content(self, name: str, kind: str) -> bytes:
        """Return the content of the object with this id, which must have this type."""
        position = self._positions.get(name)
        if position is None:
            raise ValueError(f"{kind} {name} is missing")
        found, content = self._resolved(position)
        if found != kind:
            raise ValueError(f"{name} is a {found}, not a {kind}")
        return content

    def _read_all(self) -> None:
        data = self._data
        count = int.from_bytes(data[8:12])
        if data[:4] != b"PACK" or int.from_bytes(data[4:8]) not in (2, 3) or count > MAX_OBJECTS:
            raise ValueError(f"the pack is not valid, or has more than {MAX_OBJECTS} objects")
        if hashlib.sha1(memoryview(data)[:-_CHECKSUM], usedforsecurity=False).digest() != data[-_CHECKSUM:]:
            raise ValueError("the checksum of the pack is wrong")
        at, waiting = _HEADER, []
        for _ in range(count):
            position = at
            self._objects[position], at = self._header(position)
            _, at = self._inflated(self._objects[position])
            waiting.append(position)
        while waiting:  # a base may come after the objects that change it
            unresolved = [position for position in waiting if not self._identified(position)]
            if len(unresolved) == len(waiting):
                raise ValueError("the base object of a delta is missing")
            waiting = unresolved

    def _header(self, at: int) -> tuple[_Object, int]:
        """Return the object at a position, and the position of its content."""
        position, data = at, self._data
        byte = data[at]
        code, size, shift = (byte >> 4) & 7, byte & 15, 4
        while byte & 0x80:
            at += 1
            byte = data[at]
            size |= (byte & 0x7F) << shift
            shift += 7
        at += 1
        if size > MAX_OBJECT_BYTES:
            raise ValueError(f"a file has {size} bytes, and {MAX_OBJECT_BYTES} are allowed")
        base: int | str | None = None
        if code == _OFFSET_DELTA:
            distance, at = _distance(data, at)
            base = position - distance
        elif code == _ID_DELTA:
            base, at = data[at : at + 20].hex(), at + 20
        elif code not in _TYPES:
            raise ValueError(f"an object has the unknown type {code}")
        return _Object(_TYPES.get(code), size, at, base), at

    def _inflated(self, found: _Object) -> tuple[bytes, int]:
        """Return the uncompressed content of an object, and the position after it."""
        inflater, out, at = zlib.decompressobj(), bytearray(), found.start
        try:
            while not inflater.eof:
                chunk = inflater.unconsumed_tail or self._data[at : at + _CHUNK]
                if not chunk:
                    raise ValueError("the pack ends early")
                if not inflater.unconsumed_tail:
                    at += len(chunk)
                out += inflater.decompress(chunk, found.size + 1 - len(out))
                if len(out) > found.size:
                    raise ValueError("an object is larger than its header states")
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(out) != found.size:
            raise ValueError("an object is smaller than its header states")
        return bytes(out), at - len(inflater.unused_data)

    def _identified(self, position: int) -> bool:
        """Compute the id of an object. Return False if its base is not known yet."""
        base = self._objects[position].base
        if isinstance(base, str) and base not in self._positions:
            return False
        kind, content = self._resolved(position)
        name = hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
        self._positions[name] = position
        return True

    def _resolved(self, position: int) -> tuple[str, bytes]:
        """Return the type and the content of an object, with the changes of its chain of bases."""
        deltas: list[bytes] = []
        while True:
            found = self._objects.get(position)
            if found is None or len(deltas) > _MAX_CHAIN:
                raise ValueError("the base object of a delta is missing")
            content, _ = self._inflated(found)
            if found.kind is not None:
                break
            deltas.append(content)
            position = found.base if isinstance(found.base, int) else self._positions[str(found.base)]
        for delta in reversed(deltas):
            content = _changed(content, delta)
        return found.kind, content


def _distance(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return the distance to the base of a delta, and the position after it."""
    byte = data[at]
    distance = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        distance = ((distance + 1) << 7) | (byte & 0x7F)
    return distance, at + 1


def _changed(base: bytes, delta: bytes) -> bytes:
    """Apply a delta: a list of parts to copy from the base, and of new parts.

    >>> _changed(b"hello world", bytes([11, 8, 0x91, 6, 5, 3]) + b", x")
    b'world, x'
    """
    before, at = _length(delta, 0)
    after, at = _length(delta, at)
    if before != len(base) or after > MAX_OBJECT_BYTES:
        raise ValueError("a delta does not fit its base object")
    out = bytearray()
    while at < len(delta):
        code = delta[at]
        at += 1
        if not code & 0x80:
            out += delta[at : at + code]
            at += code
            continue
        numbers = []
        for bits in (range(4), range(4, 7)):
            number = 0
            for shift, bit in enumerate(bits):
                if code >> bit & 1:
                    number |= delta[at] << 8 * shift
                    at += 1
            numbers.append(number)
        start, size = numbers[0], numbers[1] or 0x10000
        out += base[start : start + size]
        if len(out) > after:
            break
    if len(out) != after:
        raise ValueError("a delta has a size other than its header states")
    return bytes(out)


def _length(delta: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = delta[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return number, at
