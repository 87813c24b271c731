"""Manifest ↔ bytes, and which files a manifest names.

The format version is read before anything else, so that a newer manifest is refused as *newer* and not as damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.files.layout import is_safe_relative
from penstock.checkpoint.files.manifest import FORMAT_VERSION, Manifest
from penstock.common.errors import SnapshotTorn, StateFormatUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.checkpoint.files.manifest import SourceState

_OLDEST_READABLE = 1
STAGED_FILE = "staged_file"
"""Key under which a committable names the file its content was written to."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


class _Version(msgspec.Struct):
    format_version: int


@dataclass(frozen=True)
class NamedFile:
    """A file as a handle names it. `checksum`: `crc32:` and 8 hex digits, empty if the handle gives none.

    `offset`: where it begins in the object at `path`; None: it is the whole object.
    """

    path: str
    size: int
    checksum: str
    offset: int | None = None

    def __str__(self) -> str:
        return self.path if self.offset is None else f"{self.path} ({self.size} bytes at {self.offset})"


def encode_manifest(manifest: Manifest) -> bytes:
    """
    Raises:
        TypeError: something in it is not JSON-able; names the type.
    """
    return msgspec.json.format(_encoder.encode(manifest), indent=1) + b"\n"


def decode_manifest(content: bytes, url: str) -> Manifest:
    """
    Raises:
        StateFormatUnsupported: written by a newer version, or one too old.
        SnapshotTorn: not a manifest, or cut off.
    """
    try:
        version = msgspec.json.decode(content, type=_Version).format_version
    except msgspec.MsgspecError as error:
        raise _torn(url, content, error) from error
    if not _OLDEST_READABLE <= version <= FORMAT_VERSION:
        raise StateFormatUnsupported(
            f"{url} has format version {version}; this version of Penstock reads {_OLDEST_READABLE} to {FORMAT_VERSION}",
            remedy="restore it with the version of Penstock that wrote it, or a newer one",
        )
    try:
        manifest = _decoder.decode(content)
        files = files_of(manifest)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _torn(url, content, error) from error
    unsafe = [file.path for file in files if not is_safe_relative(file.path)]
    if unsafe:
        raise SnapshotTorn(
            f"{url} names files outside of its own folder: {', '.join(map(repr, unsafe[:3]))}",
            remedy="do not use this snapshot: it was not written by Penstock",
        )
    return manifest


def _torn(url: str, content: bytes, error: Exception) -> SnapshotTorn:
    return SnapshotTorn(
        f"{url} is not a readable manifest ({len(content)} bytes): {error}",
        remedy="it was cut off or overwritten by something else; use another checkpoint or savepoint",
    )


def handle_files(handle: dict[str, Any]) -> Iterator[NamedFile]:
    """The files of one keyed state handle (`files`: list of {"path", "size", "checksum", …}).

    >>> list(handle_files({"files": [{"path": "shared/a", "size": 3, "checksum": "crc32:00000000"}]}))
    [NamedFile(path='shared/a', size=3, checksum='crc32:00000000', offset=None)]

    Raises:
        ValueError: an offset or a size is negative.
    """
    for file in handle.get("files", ()):
        size, offset = int(file["size"]), file.get("offset")
        if size < 0 or (offset is not None and int(offset) < 0):
            raise ValueError(f"{file['path']} is named with {size} bytes at {offset}")
        yield NamedFile(file["path"], size, str(file.get("checksum", "")), None if offset is None else int(offset))


def source_files(sources: Mapping[str, SourceState]) -> Iterator[NamedFile]:
    """The files that splits are read from."""
    for source in sources.values():
        for split in source.splits:
            yield from handle_files({"files": split.files})


def staged_files(committables: Iterable[Any]) -> Iterator[NamedFile]:
    """The files of committables whose content was too large for the manifest.

    >>> file = {"path": "shared/a", "size": 3, "checksum": "crc32:00000000"}
    >>> [file.path for file in staged_files([{STAGED_FILE: file}, "another sink's", {"x": 1}])]
    ['shared/a']
    """
    for committable in committables:
        if isinstance(committable, dict) and isinstance(file := committable.get(STAGED_FILE), dict):
            yield from handle_files({"files": [file]})


def files_of(manifest: Manifest) -> list[NamedFile]:
    """Every file the manifest names, once, ordered by path and offset."""
    handles = (handle or {} for state in manifest.states.values() for handle in state.keyed)
    committed = map(staged_files, manifest.commits.values())
    named = chain(*map(handle_files, handles), source_files(manifest.sources), *committed)
    found = {(file.path, -1 if file.offset is None else file.offset): file for file in named}
    return [found[place] for place in sorted(found)]


def objects_of(manifest: Manifest) -> list[str]:
    """Paths of the objects that hold its files, each once, in order."""
    return list(dict.fromkeys(file.path for file in files_of(manifest)))
