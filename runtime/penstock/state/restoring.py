"""The content of keyed state handles of any backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.hashmap.reading import chain_files, check_format, read_chain
from penstock.state.hashmap.snapshot import BACKEND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.state.files import StateFileReader
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.snapshot_format.segment import StoredBlock


def stored_blocks(
    handle: dict[str, Any], groups: KeyGroupRange, reader: StateFileReader, names: Collection[str] | None = None
) -> Iterator[StoredBlock]:
    """Yield a handle's content in these key groups as blocks.

    Args:
        names: names of the states, and of timers as in `TIMER_TABLES`. None means all.

    Raises:
        CorruptStateFile, StateFormatUnsupported.
    """
    check_format(handle)
    if handle["backend"] == BACKEND:
        blocks = read_chain(chain_files(handle, groups), reader)
        return (block for block in blocks if names is None or block.name in names)
    from penstock.state.rocksdb.export import exported_blocks  # loads RocksDB, which few jobs need

    return exported_blocks(handle, groups, reader, names)
