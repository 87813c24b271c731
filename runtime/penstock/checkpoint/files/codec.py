"""The encoding of manifests, and the files that a manifest names.

The format version is read first. So the error for a newer manifest says that it is newer, not that it is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.files.manifest import FORMAT_VERSION, Manifest
from penstock.common.errors import SnapshotTorn, StateFormatUnsupported
from penstock.common.folders.storage_names import checked_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.checkpoint.files.manifest import SourceState

_OLDEST_READABLE = 1
STAGED_FILE = "staged_file"
"""Key under which a committable names the file that has its content."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


class _Version(msgspec.Struct):
    format_version: int
    penstock_version: str = ""


class _Keyed(msgspec.Struct):
    key_groups: tuple[int, int]
    files: list[dict[str, Any]] = []
    states: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True)
class NamedFile:
    """A file that a handle names. `checksum`: `crc32:` and 8 hex digits, empty if the handle has none.

    `offset`: start of the file in the object at `path`; None means that the file is the whole object.
    """

    path: str
    size: int
    checksum: str
    offset: int | None = None

    def __str__(self) -> str:
        return self.path if self.offset is None else f"{self.path} ({self.size} bytes at {self.offset})"


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest.

    Raises:
        TypeError: a value cannot be encoded as JSON. The error names the type of the value.
    """
    return msgspec.json.format(_encoder.encode(manifest), indent=1) + b"\n"


def decode_manifest(content: bytes, url: str) -> Manifest:
    """Decode a manifest.

    Raises:
        StateFormatUnsupported: a newer version wrote it, or its format is too old.
        SnapshotTorn: the content is not a manifest, or is cut off.
    """
    try:
        found = msgspec.json.decode(content, type=_Version)
    except msgspec.MsgspecError as error:
        raise _torn(url, content, error) from error
    version = found.format_version
    if not _OLDEST_READABLE <= version <= FORMAT_VERSION:
        writer = f" (Penstock {found.penstock_version} wrote it)" if found.penstock_version else ""
        raise StateFormatUnsupported(
            f"{url} has format version {version}{writer}; this version of Penstock reads {_OLDEST_READABLE} to "
            f"{FORMAT_VERSION}",
            remedy="restore it with the version of Penstock that wrote it, or with a newer one",
        )
    try:
        manifest = _decoder.decode(content)
        files = files_of(manifest)
        _check_keyed(manifest)
    except (
        msgspec.MsgspecError,
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        raise _torn(url, content, error) from error
    for file in files:
        checked_path(file.path, url)
    return manifest


def _check_keyed(manifest: Manifest) -> None:
    """Check the fields of handles that restore plans read. `state.handle_shape` checks the rest before a file is read."""
    for state in manifest.states.values():
        for handle in filter(None, state.keyed):
            msgspec.convert(handle, _Keyed)


def _torn(url: str, content: bytes, error: Exception) -> SnapshotTorn:
    return SnapshotTorn(
        f"{url} is not a readable manifest ({len(content)} bytes): {error}",
        remedy="the file is truncated or was overwritten. Use another checkpoint or savepoint",
    )


def handle_files(handle: dict[str, Any]) -> Iterator[NamedFile]:
    """Yield the files of one keyed state handle (`files`: list of {"path", "size", "checksum", …}).

    >>> list(handle_files({"files": [{"path": "shared/a", "size": 3, "checksum": "crc32:00000000"}]}))
    [NamedFile(path='shared/a', size=3, checksum='crc32:00000000', offset=None)]

    Raises:
        ValueError: an offset or a size is negative.
    """
    for file in handle.get("files", ()):
        size, offset = int(file["size"]), file.get("offset")
        if size < 0 or (offset is not None and int(offset) < 0):
            raise ValueError(f"the file {file['path']} has a negative size or offset: {size} bytes at {offset}")
        yield NamedFile(file["path"], size, str(file.get("checksum", "")), None if offset is None else int(offset))


def source_files(sources: Mapping[str, SourceState]) -> Iterator[NamedFile]:
    """Yield the files from which splits are read."""
    for source in sources.values():
        for split in source.splits:
            yield from handle_files({"files": split.files})


def staged_files(committables: Iterable[Any]) -> Iterator[NamedFile]:
    """Yield the files of committables whose content was too large for the manifest.

    >>> file = {"path": "shared/a", "size": 3, "checksum": "crc32:00000000"}
    >>> [file.path for file in staged_files([{STAGED_FILE: file}, "another sink's", {"x": 1}])]
    ['shared/a']
    """
    for committable in committables:
        if isinstance(committable, dict) and isinstance(file := committable.get(STAGED_FILE), dict):
            yield from handle_files({"files": [file]})


def files_of(manifest: Manifest) -> list[NamedFile]:
    """Return every file that the manifest names, once, ordered by path and offset."""
    handles = (handle or {} for state in manifest.states.values() for handle in state.keyed)
    committed = map(staged_files, manifest.commits.values())
    named = chain(*map(handle_files, handles), source_files(manifest.sources), *committed)
    found = {(file.path, -1 if file.offset is None else file.offset): file for file in named}
    return [found[place] for place in sorted(found)]


def objects_of(manifest: Manifest) -> list[str]:
    """Return the paths of the objects that contain the manifest's files, each path once, in order."""
    return list(dict.fromkeys(file.path for file in files_of(manifest)))
