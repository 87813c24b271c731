"""The memory of all databases of a slot: one cache and one bound on unflushed writes, for all operators and states."""

from __future__ import annotations

from rocksdict import Cache, WriteBufferManager

from penstock.state.rocksdb.options import memory_shares


class SlotMemory:
    """The memory that the databases of one process share. The cache holds blocks, indexes and filters, and is charged for unflushed writes.

    Args:
        size: total size in bytes.
        write_buffer_ratio: `memory.write-buffer-ratio`.
    """

    def __init__(self, size: int, write_buffer_ratio: float) -> None:
        self.size = size
        cache, writes = memory_shares(size, write_buffer_ratio)
        self.cache = Cache(cache)
        self.writes = WriteBufferManager.new_write_buffer_manager_with_cache(writes, False, self.cache)

    @property
    def usage(self) -> int:
        """Return the bytes that all databases use."""
        return int(self.cache.get_usage())
