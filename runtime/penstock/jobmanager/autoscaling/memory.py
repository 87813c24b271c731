"""Advice on the memory of slots: a pure function of the measured use.

Two parts of a slot's memory depend on the job: Python and RocksDB. Python has the records, the user's objects and the state of the hashmap
backend. All other parts have a known limit. Python needs its memory, so a slot that is near its limit needs more. RocksDB
works with any memory, but reads from disk if its cache is too small. So the share of cache misses decides.

A new size takes effect with the next start of the TaskManagers, for example with an upgrade.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.common.config.memory import MIB, PYTHON_WORKER, TaskManagerMemory
from penstock.jobmanager.autoscaling.samples import MemorySample

FULL = 0.85
"""Used share of Python's memory above which a slot needs more."""
WANTED = 0.7
"""Used share of Python's memory that is recommended."""
SPARE = 0.4
"""Used share of Python's memory below which a slot could have less."""
MISSES = 0.1
"""Share of cache misses above which more memory of RocksDB is recommended."""
FEW_MISSES = 0.01
LEAST_READS = 10_000
"""Number of reads of blocks below which the share of misses is not used."""
UNPACKED = 2
"""Ratio of the sizes of state in the cache and on disk, where it is compressed."""
LEAST_MANAGED = 32 * MIB
ROUND = 64 * MIB


class Advice(Enum):
    """Result for one part of the memory. The names are part of the REST API."""

    ENOUGH = "ENOUGH"
    MORE = "MORE"
    LESS = "LESS"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class PartAdvice:
    """Advice for one part of a slot's memory. Sizes in bytes. None means no limit, or unknown."""

    advice: Advice
    message: str
    size: int | None
    used: int | None
    recommended: int | None
    """Recommended size. It is the present one if nothing is to change."""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "advice": self.advice.value}


def advise(memory: TaskManagerMemory, samples: Sequence[MemorySample], *, uses_rocksdb: bool) -> dict[str, Any]:
    """Return the advice with the names of the REST API.

    Args:
        memory: present memory of a TaskManager.
        samples: measured use in one attempt, the oldest first.
    """
    python = _python(memory.python_per_slot, max((one.python for one in samples), default=0))
    found: dict[str, Any] = {"python": python.to_json(), "rocksdb": None}
    parts = [python]
    if uses_rocksdb:
        rocksdb = _rocksdb(memory.managed_per_slot, samples)
        found["rocksdb"] = rocksdb.to_json()
        parts.append(rocksdb)
    found |= {"processSize": memory.process, "recommendedProcessSize": memory.process}
    if memory.process is not None:
        change = sum((one.recommended or 0) - (one.size or 0) for one in parts if one.size is not None)
        if change:
            found["recommendedProcessSize"] = _rounded(memory.process + memory.slots * change)
    return found


def _python(limit: int | None, used: int) -> PartAdvice:
    if not used:
        return PartAdvice(Advice.UNKNOWN, "The memory of the Python processes is not measured yet.", limit, None, limit)
    text = f"The Python processes of a slot use {_mib(used)}"
    if limit is None:
        message = f"{text}. Their memory has no limit. Set taskmanager.memory.process.size to have one."
        return PartAdvice(Advice.UNKNOWN, message, None, used, None)
    text += f" of {_mib(limit)}"
    if used > FULL * limit:
        size = _rounded(used / WANTED)
        return PartAdvice(Advice.MORE, f"{text}. Give them {_mib(size)}.", limit, used, size)
    size = max(_rounded(used / WANTED), PYTHON_WORKER)
    if used < SPARE * limit and size < limit:
        return PartAdvice(Advice.LESS, f"{text}. {_mib(size)} are enough.", limit, used, size)
    return PartAdvice(Advice.ENOUGH, f"{text}.", limit, used, limit)


def _rocksdb(size: int | None, samples: Sequence[MemorySample]) -> PartAdvice:
    state = max((one.state for one in samples), default=0)
    counted = [one for one in samples if one.cache_hits is not None and one.cache_misses is not None]
    hits = misses = 0
    if counted:
        hits = (counted[-1].cache_hits or 0) - (counted[0].cache_hits or 0)
        misses = (counted[-1].cache_misses or 0) - (counted[0].cache_misses or 0)
    needed = max(LEAST_MANAGED, _rounded(UNPACKED * state))
    if hits < 0 or misses < 0 or hits + misses < LEAST_READS:
        return _by_size(size, state, needed, is_counted=bool(counted))
    share = misses / (hits + misses)
    text = f"RocksDB has not found {100 * share:.1f} % of its blocks in the cache"
    if share > MISSES:
        wanted = needed if size is None else min(_rounded(2 * size), max(needed, _rounded(1.25 * size)))
        return PartAdvice(Advice.MORE, f"{text}. Give it {_mib(wanted)} per slot.", size, state, wanted)
    if share < FEW_MISSES and size is not None and state and needed < size / 2:
        return PartAdvice(Advice.LESS, f"{text}. {_mib(needed)} per slot are enough.", size, state, needed)
    return PartAdvice(Advice.ENOUGH, f"{text}.", size, state, size)


def _by_size(size: int | None, state: int, needed: int, *, is_counted: bool) -> PartAdvice:
    """Return the advice if the misses are not known. State that fits into the cache has none."""
    text = f"The state of a slot has {_mib(state)} in the newest checkpoint"
    if state and size is not None and needed < size / 2:
        return PartAdvice(Advice.LESS, f"{text}. {_mib(needed)} per slot are enough.", size, state, needed)
    if state and size is not None and needed <= size:
        return PartAdvice(Advice.ENOUGH, f"{text}, so the cache of RocksDB can hold all of it.", size, state, size)
    message = (
        "RocksDB has read too few blocks for an advice."
        if is_counted
        else (
            "The cache misses of RocksDB are not counted. To count them, set state.backend.rocksdb.metrics.block-cache-hit and "
            "state.backend.rocksdb.metrics.block-cache-miss to true."
        )
    )
    return PartAdvice(Advice.UNKNOWN, message, size, state or None, size)


def _rounded(size: float) -> int:
    """Return the next multiple of 64 MiB."""
    return max(1, -int(-size // ROUND)) * ROUND


def _mib(size: float) -> str:
    return f"{size / MIB:.0f} MiB"
