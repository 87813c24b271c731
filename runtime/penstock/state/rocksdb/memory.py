"""The memory of all databases of a slot: one cache and one bound on unflushed writes, whichever operator or state uses them."""

from __future__ import annotations

from rocksdict import Cache, WriteBufferManager

from penstock.state.rocksdb.options import memory_shares


class SlotMemory:
    """What the databases of one process share. Blocks, indexes and filters are in the cache, and unflushed writes are charged to it.

    Args:
        size: bytes.
        write_buffer_ratio: `memory.write-buffer-ratio`.
    """

    def __init__(self, size: int, write_buffer_ratio: float) -> None:
        self.size = size
        cache, writes = memory_shares(size, write_buffer_ratio)
        self.cache = Cache(cache)
        self.writes = WriteBufferManager.new_write_buffer_manager_with_cache(writes, False, self.cache)

    @property
    def usage(self) -> int:
        """Bytes in use by all of them."""
        return int(self.cache.get_usage())
