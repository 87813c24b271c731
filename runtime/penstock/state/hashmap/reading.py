"""Reading the files of keyed state handles, and putting what they hold into tables."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateFormatUnsupported
from penstock.state.backend import KeyGroupRange
from penstock.state.hashmap.segment_chain import StateFile
from penstock.state.hashmap.snapshot import BACKEND, FORMAT
from penstock.state.snapshot_format.rows import DROP
from penstock.state.snapshot_format.segment import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.backend import FileRef, StateFileReader
    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.hashmap.table import Table
    from penstock.state.snapshot_format.segment import StoredBlock

READ_THREADS = 8


@contextmanager
def without_collection() -> Iterator[None]:
    """While millions of objects are made that all stay, the garbage collector would look at them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def overlap(a: KeyGroupRange, b: KeyGroupRange) -> KeyGroupRange:
    """
    >>> overlap(KeyGroupRange(0, 63), KeyGroupRange(32, 127))
    KeyGroupRange(start=32, end=63)
    """
    return KeyGroupRange(max(a.start, b.start), min(a.end, b.end))


def handles_for_range(handles: Iterable[dict[str, Any]], groups: KeyGroupRange) -> list[dict[str, Any]]:
    """The handles that hold anything of these key groups: what a subtask needs after a rescale.

    >>> handles = [{"key_groups": [0, 63]}, {"key_groups": [64, 127]}]
    >>> handles_for_range(handles, KeyGroupRange(0, 31))
    [{'key_groups': [0, 63]}]
    """
    return [handle for handle in handles if KeyGroupRange(*handle["key_groups"]).overlaps(groups)]


def chain_files(handle: dict[str, Any], groups: KeyGroupRange) -> list[StateFile]:
    """The files of a hashmap handle to be read for these key groups, in order, each with the groups that count."""
    within = overlap(KeyGroupRange(*handle["key_groups"]), groups)
    files = []
    for file in map(StateFile.of_json, handle["files"]):
        counts = overlap(file.groups, within)
        if file.role != "next" and counts.start <= counts.end:
            files.append(StateFile(file.ref, file.role, counts, file.entries))
    return files


def read_chain(files: list[StateFile], reader: StateFileReader) -> Iterator[StoredBlock]:
    """The blocks of segments, in order. Reads ahead, as object stores answer slowly but many at a time.

    Raises:
        CorruptStateFile, StateFormatUnsupported: name the file.
    """
    with ThreadPoolExecutor(READ_THREADS) as pool:
        contents = pool.map(lambda file: reader.read(file.ref), files)
        for file, content in zip(files, contents, strict=True):
            yield from read_segment(content, file.groups, _named(file.ref))


def _named(ref: FileRef) -> str:
    return f"state file {ref.path}"


def apply_block(
    table: Table,
    block: StoredBlock,
    groups: KeyGroupRange,
    max_parallelism: int,
    keys: KeyCodec,
    codec: Codec | None = None,
) -> None:
    """Make the changes of a block in a table that holds these key groups.

    Args:
        codec: reads the values; None: the table's.
    """
    rows = block.rows(groups, max_parallelism, codec or table.codec, keys, table.map_keys)
    clip = block.clip(groups)
    if rows.op == DROP and clip != groups:
        for namespace in rows.namespaces or ():
            table.drop_within(namespace, clip, max_parallelism)
    else:
        table.apply(rows)


def check_format(handle: dict[str, Any]) -> None:
    """
    Raises:
        StateFormatUnsupported: written by an unknown backend or a newer version.
    """
    backend, version = handle.get("backend"), handle.get("format")
    if backend not in (BACKEND, "rocksdb") or version != FORMAT:
        raise StateFormatUnsupported(
            f"keyed state was written by backend {backend!r} in format {version}; this version reads hashmap and rocksdb "
            f"in format {FORMAT}",
            remedy="restore with the version of Penstock that wrote it, or a newer one",
        )
