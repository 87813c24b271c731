"""Key groups: the units in which keyed state is distributed and moved.

The number of groups is `max_parallelism`. A key always belongs to the same group. A subtask owns a contiguous range of groups. The formulas
are Flink's (KeyGroupRangeAssignment). At any parallelism, the ranges of the subtasks cover all groups without gap or overlap and differ in
size by at most one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.common.errors import InvalidJob
from penstock.state.encoding.key_columns import column_hashes, keys_hashes
from penstock.state.encoding.key_hash import stable_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class KeyGroupRange(NamedTuple):
    """Key groups `start` to `end`, both included. The range is empty if end < start."""

    start: int
    end: int

    def __contains__(self, group: object) -> bool:
        return isinstance(group, int) and self.start <= group <= self.end

    def overlaps(self, other: KeyGroupRange) -> bool:
        return self.start <= other.end and other.start <= self.end


MAX_PARALLELISM_LIMIT = 1 << 15
"""Flink's upper bound of max parallelism. A key group fits in two bytes."""


def key_group(key: Any, max_parallelism: int) -> int:
    """Return the group of a key, 0 to `max_parallelism` - 1.

    Raises:
        StateTypeError: the type of the key has no canonical form.

    >>> key_group("sensor_1", 128), key_group(1, 128) == key_group(1.0, 128)
    (61, True)
    """
    return stable_hash(key) % max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the groups that a subtask owns.

    Raises:
        InvalidJob: the parallelism is above the max parallelism, or the max parallelism is out of bounds.

    >>> [key_group_range(subtask, 3, 128) for subtask in range(3)]
    [KeyGroupRange(start=0, end=42), KeyGroupRange(start=43, end=85), KeyGroupRange(start=86, end=127)]
    """
    check_parallelism(parallelism, max_parallelism)
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def subtask_for_key_group(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a group.

    >>> subtask_for_key_group(42, 3, 128), subtask_for_key_group(43, 3, 128)
    (0, 1)
    """
    return group * parallelism // max_parallelism


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Check the parallelism.

    Raises:
        InvalidJob: see `key_group_range`.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise InvalidJob(
            f"max parallelism is {max_parallelism}", remedy=f"choose a number from 1 to {MAX_PARALLELISM_LIMIT}"
        )
    if not 1 <= parallelism <= max_parallelism:
        raise InvalidJob(
            f"parallelism {parallelism} does not fit max parallelism {max_parallelism}",
            remedy=f"choose a parallelism from 1 to {max_parallelism}, or, for a job without state to keep, a higher "
            "max parallelism",
        )


class KeyGroupCache(dict[Any, int]):
    """A cache key -> key group, filled at the first look-up of a key. The cache is cleared when it has `limit` keys.

    >>> groups = KeyGroupCache(128)
    >>> groups["sensor_1"], list(map(groups.__getitem__, ["sensor_1", "sensor_2"]))
    (61, [61, 125])
    """

    __slots__ = ("_limit", "_max_parallelism")

    def __init__(self, max_parallelism: int, limit: int = 1 << 17) -> None:
        super().__init__()
        self._max_parallelism = max_parallelism
        self._limit = limit

    def __missing__(self, key: Any) -> int:
        if len(self) >= self._limit:
            self.clear()
        group = self[key] = stable_hash(key) % self._max_parallelism
        return group


def column_key_groups(column: pa.Array | pa.ChunkedArray, max_parallelism: int) -> npt.NDArray[np.int64]:
    """Return the group of every cell of a column of keys, without Python objects for the keys.

    >>> import pyarrow as pa
    >>> column_key_groups(pa.array(["sensor_1", "sensor_2"]), 128).tolist()
    [61, 125]
    """
    return _modulo(column_hashes(column), max_parallelism)


def keys_key_groups(keys: Sequence[Any], max_parallelism: int) -> npt.NDArray[np.int64]:
    """Return the group of every key of a sequence. This is much faster than single calls if all keys are strings or all
    keys are integers.

    >>> keys_key_groups(["sensor_1", "sensor_2"], 128).tolist()
    [61, 125]
    """
    return _modulo(keys_hashes(keys), max_parallelism)


def _modulo(hashes: npt.NDArray[np.uint32], max_parallelism: int) -> npt.NDArray[np.int64]:
    return (hashes % np.uint32(max_parallelism)).astype(np.int64)
