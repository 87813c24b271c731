"""The options of the RocksDB backend, `state.backend.rocksdb.*`: their defaults and how their text values are read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "state.backend.rocksdb."
MEMORY = "memory.of-slot"
"""Memory that all databases of a slot may use together: bytes, or a shared `memory.SlotMemory`. If it is missing, there
is no bound.

Users do not set this option. It follows from the memory of the slot.
"""
WRITES = "writes"
"""Bytes of unflushed writes of all states and databases together; 0 means no bound."""
_MIN_MEMORY = 1 << 20
DEFAULTS: dict[str, Any] = {
    "block.cache-size": "64mb",
    "block.blocksize": "4kb",
    "writebuffer.size": "32mb",
    "thread.num": 2,
    "compression": "lz4",
    "checkpoint.transfer.thread.num": 4,
    "memory.write-buffer-ratio": 0.5,
}
"""The options and their defaults:

- cache of read blocks, size of a block, memory of unflushed writes per state
- background threads, threads for upload and download
- compression of files (`none`, `lz4`, `zstd`, `snappy`)

If the slot's memory has a bound, `memory.write-buffer-ratio` is the share for unflushed writes of all states together.
The rest is for the cache, and `block.cache-size` has no effect.
"""

PREDEFINED: dict[str, dict[str, Any]] = {
    "DEFAULT": {},
    "SPINNING_DISK_OPTIMIZED": {"thread.num": 4},
    "SPINNING_DISK_OPTIMIZED_HIGH_MEM": {
        "thread.num": 4,
        "block.cache-size": "256mb",
        "block.blocksize": "128kb",
        "writebuffer.size": "64mb",
    },
    "FLASH_SSD_OPTIMIZED": {"thread.num": 4},
}
"""Values of `predefined-options`, and the defaults that each value changes."""

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_COMPRESSIONS = ("none", "lz4", "zstd", "snappy", "lz4hc", "zlib", "bz2")


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of this backend, with their defaults.

    Args:
        options: options with or without the prefix `state.backend.rocksdb.`. Options of other subjects are ignored.

    Raises:
        InvalidJob: a value is not valid.

    >>> read_options({"state.backend.rocksdb.writebuffer.size": "4mb"})["writebuffer.size"]
    4194304

    A bound on the memory of the slot is divided:

    >>> bounded = read_options({MEMORY: 64 << 20, "memory.write-buffer-ratio": "0.25"})
    >>> bounded["block.cache-size"] >> 20, bounded[WRITES] >> 20
    (58, 10)
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items()}
    predefined = given.get("predefined-options", "DEFAULT")
    if predefined not in PREDEFINED:
        raise InvalidJob(f"{PREFIX}predefined-options is {predefined!r}", remedy=f"choose from {', '.join(PREDEFINED)}")
    known = {name: value for name, value in given.items() if name in DEFAULTS}
    values = DEFAULTS | PREDEFINED[predefined] | known
    values[WRITES], values[MEMORY] = 0, given.get(MEMORY)
    if memory := values[MEMORY]:
        cache, values[WRITES] = memory_shares(
            getattr(memory, "size", memory), float(values["memory.write-buffer-ratio"])
        )
        values["block.cache-size"] = f"{cache}b"
        if "writebuffer.size" not in known:  # RocksDB allocates an eighth of the size with a state's first write
            most = _bytes("writebuffer.size", values["writebuffer.size"])
            values["writebuffer.size"] = f"{max(_MIN_MEMORY, min(most, values[WRITES] // 2))}b"
    for name in ("block.cache-size", "block.blocksize", "writebuffer.size"):
        values[name] = _bytes(name, values[name])
    for name in ("thread.num", "checkpoint.transfer.thread.num"):
        values[name] = _count(name, values[name])
    if str(values["compression"]) not in _COMPRESSIONS:
        raise InvalidJob(
            f"the compression {values['compression']!r} does not exist", remedy="choose none, lz4, zstd or snappy"
        )
    return values


def memory_shares(size: int, write_buffer_ratio: float) -> tuple[int, int]:
    """Return the capacity of the cache and of the write buffers, in bytes. The cache is charged for the write buffers.

    During a flush, write buffers may exceed their capacity by half. The cache does not get this half. Flink uses the
    same formula
    (https://nightlies.apache.org/flink/flink-docs-release-2.0/docs/deployment/config/#state-backend-rocksdb-memory-write-buffer-ratio).

    >>> memory_shares(30 << 20, 0.5)
    (26214400, 10485760)
    """
    cache, writes = int(size * (3 - write_buffer_ratio) / 3), int(size * write_buffer_ratio * 2 / 3)
    return max(_MIN_MEMORY, cache), max(_MIN_MEMORY, writes)


def _count(name: str, value: Any) -> int:
    if not str(value).isdigit() or not int(value):
        raise InvalidJob(f"{PREFIX}{name} is {value!r}", remedy="write a number of threads, at least 1")
    return int(value)


def _bytes(name: str, value: Any) -> int:
    text = str(value).strip().lower()
    digits = text.rstrip("bgkm ")
    unit = text[len(digits) :].strip()
    if not digits.isdigit() or unit not in _UNITS:
        raise InvalidJob(f"{PREFIX}{name} is {value!r}", remedy="write a size such as 64mb")
    return int(digits) * _UNITS[unit]
