"""Functions that read the files of keyed state handles and store their content in tables."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateFormatUnsupported
from penstock.state.decoding import decoding
from penstock.state.handle_shape import BACKENDS, check_shape
from penstock.state.hashmap.segment_chain import StateFile
from penstock.state.hashmap.snapshot import FORMAT, FORMAT_WITH_ORIGINS
from penstock.state.key_groups import KeyGroupRange
from penstock.state.snapshot_format.rows import DROP
from penstock.state.snapshot_format.segment import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.files import FileRef, StateFileReader
    from penstock.state.hashmap.table import Table
    from penstock.state.snapshot_format.segment import StoredBlock

READ_THREADS = 8


@contextmanager
def without_collection() -> Iterator[None]:
    """Turn off the garbage collector while millions of permanent objects are created, because the collector would scan these objects
    repeatedly.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def overlap(a: KeyGroupRange, b: KeyGroupRange) -> KeyGroupRange:
    """Return the key groups in both ranges. The result is empty if the ranges do not overlap.

    >>> overlap(KeyGroupRange(0, 63), KeyGroupRange(32, 127))
    KeyGroupRange(start=32, end=63)
    """
    return KeyGroupRange(max(a.start, b.start), min(a.end, b.end))


def handles_for_range(handles: Iterable[dict[str, Any]], groups: KeyGroupRange) -> list[dict[str, Any]]:
    """Return the handles that have any of these key groups. A subtask needs these handles after a rescale.

    >>> handles = [{"key_groups": [0, 63]}, {"key_groups": [64, 127]}]
    >>> handles_for_range(handles, KeyGroupRange(0, 31))
    [{'key_groups': [0, 63]}]
    """
    with decoding("a handle of keyed state"):
        return [handle for handle in handles if KeyGroupRange(*handle["key_groups"]).overlaps(groups)]


def chain_files(handle: dict[str, Any], groups: KeyGroupRange) -> list[StateFile]:
    """Return the files of a hashmap handle to read for these key groups, in order, each with the key groups to read from it."""
    within = overlap(KeyGroupRange(*handle["key_groups"]), groups)
    with decoding("the handle of a hashmap snapshot"):
        named = [StateFile.of_json(entry) for entry in handle["files"]]
    files = []
    for file in named:
        counts = overlap(file.groups, within)
        if file.role != "next" and counts.start <= counts.end:
            files.append(StateFile(file.ref, file.role, counts, file.entries))
    return files


def read_chain(files: list[StateFile], reader: StateFileReader) -> Iterator[StoredBlock]:
    """Yield the blocks of segments, in order. Read ahead, because object stores have a long latency but serve many requests concurrently.

    Raises:
        CorruptStateFile, StateFormatUnsupported: a file cannot be read. The error names it.
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
    """Apply the changes of a block to a table of these key groups.

    Args:
        codec: codec of the stored values. None means the table's codec.

    Raises:
        CorruptStateFile: the block does not have valid rows.
    """
    with decoding(f"state {block.name!r}", operator=(codec or table.codec).operator):
        rows = block.rows(groups, max_parallelism, codec or table.codec, keys, table.map_keys)
        clip = block.clip(groups)
        if rows.op == DROP and clip != groups:
            for namespace in rows.namespaces or ():
                table.drop_within(namespace, clip, max_parallelism)
        else:
            table.apply(rows)


def check_format(handle: dict[str, Any]) -> None:
    """Check the format of a handle.

    Raises:
        StateFormatUnsupported: an unknown backend or a newer version wrote the handle.
        CorruptStateFile: `handle` does not have the shape of a handle.
    """
    backend, version = handle.get("backend"), handle.get("format")
    if backend not in BACKENDS or version not in (FORMAT, FORMAT_WITH_ORIGINS):
        raise StateFormatUnsupported(
            f"keyed state was written by backend {backend!r} in format {version}; this version reads hashmap and rocksdb "
            f"in formats {FORMAT} and {FORMAT_WITH_ORIGINS}",
            remedy="restore with the version of Penstock that wrote it, or with a newer one",
        )
    check_shape(handle)
