"""The most frequent keys and key groups of an exchange, from a sample of its records.

Problem. One subtask processes all records of a key. So more parallelism does not help a job if one key has a large share of the records. To
name this key, the writer must count keys, but a count per record costs more than the rest of the exchange.

Solution. The writer samples a fixed number of keys per second, at any rate of records. A sample has every n-th key of a batch. n is
random around a mean that follows the rate, so that keys in a regular order are sampled evenly. The counts are a Misra-Gries sketch. If
the sketch has too many keys, it keeps the most frequent ones and subtracts the same number from each count. So the error
of a count is at most 1/`KEPT` of the number of samples, and no count is too large.

Prior art: Misra and Gries, "Finding repeated elements" (1982); Agarwal et al., "Mergeable summaries" (PODS '12).
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from heapq import nlargest
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.records.fields import shortened
from penstock.state.key_groups import keys_key_groups
from penstock.taskmanager.protocol import KeyCounts

SAMPLES_PER_S = 200
"""Wanted number of sampled keys per second of CPU time. A sample costs a few µs, so the sketch uses about 0.1 % of the thread's time."""
LEAST_PER_S = 50
"""Wanted number of sampled keys per second of a thread that is mostly idle."""
REPORT_S = 2.0
"""Time between two reports. A report has the counts since the last one."""
TOP = 4
"""Number of keys and of key groups of a report."""
LEAST_SHARE = 0.02
"""Smallest share of a reported key or key group."""
KEPT = 256
_MOST_KEYS = 1024
_BATCH = 128
"""Number of sampled keys that are counted together."""
_FIRST_STRIDE = 16
_LONGEST_STRIDE = 1 << 16
_rng = random.Random(7)
_FACTORS = [_rng.uniform(0.5, 1.5) for _ in range(64)]
"""Factors of the stride. Each one gives a distance between two sampled keys."""
_FEW_CELLS = 32
_KEY_CHARS = 60


class KeySketch:
    """A sketch of one sender. It never raises: if keys cannot be counted, it stops and reports nothing.

    Args:
        clock: returns the time in seconds.
        cpu_clock: returns the CPU time of the thread in seconds.
    """

    def __init__(
        self,
        max_parallelism: int,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._max_parallelism = max_parallelism
        self._clock, self._cpu_clock = clock, cpu_clock
        self._skip = 0
        self._is_stopped = False
        self._sample: list[Any] = []
        self._counts: dict[Any, int] = {}
        self._groups: npt.NDArray[np.int64] = np.zeros(max_parallelism, np.int64)
        self._total = 0
        self._since_adapted = 0
        self._reported_at = self._adapted_at = clock()
        self._adapted_cpu = cpu_clock()
        self._set_stride(_FIRST_STRIDE)

    # --- for each batch ---------------------------------------------------------------------------------------

    def pick(self, count: int) -> slice | None:
        """Return the part of the next `count` keys to sample, or None. The caller passes these keys to `add`."""
        skip = self._skip
        if skip >= count:
            self._skip = skip - count
            return None
        stride = next(self._strides)
        self._skip = stride - 1 - (count - 1 - skip) % stride
        return slice(skip, count, stride)

    def add(self, keys: list[Any]) -> None:
        """Add sampled keys."""
        self._sample += keys
        if len(self._sample) >= _BATCH:
            self._count()

    def add_cells(self, column: pa.Array, part: slice) -> None:
        """Add a sampled part of a column of keys."""
        try:
            indices = range(*part.indices(len(column)))
            if len(indices) <= _FEW_CELLS:
                self.add([column[index].as_py() for index in indices])
            else:
                self.add(column.take(pa.array(np.arange(indices.start, indices.stop, indices.step))).to_pylist())
        except Exception:
            self._stop()

    # --- counting ---------------------------------------------------------------------------------------------

    def _count(self) -> None:
        sample, self._sample = self._sample, []
        if not sample or self._is_stopped:
            return
        try:
            groups = keys_key_groups(sample, self._max_parallelism)
            found = Counter(sample)
        except Exception:
            self._stop()
            return
        weight, counts = self._stride, self._counts
        self._groups += np.bincount(groups, minlength=self._max_parallelism) * weight
        for key, number in found.items():
            counts[key] = counts.get(key, 0) + number * weight
        self._total += len(sample) * weight
        if len(counts) > _MOST_KEYS:
            self._shrink()
        self._adapt(len(sample))

    def _shrink(self) -> None:
        top = nlargest(KEPT + 1, self._counts.items(), key=lambda entry: entry[1])
        least = top[-1][1]
        self._counts = {key: number - least for key, number in top if number > least}

    def _adapt(self, sampled: int) -> None:
        """Set the stride that gives the wanted number of samples at the present rate of records."""
        now, cpu = self._clock(), self._cpu_clock()
        self._since_adapted += sampled
        elapsed = now - self._adapted_at
        if elapsed < REPORT_S and self._since_adapted < _BATCH:
            return
        wanted = max(SAMPLES_PER_S * (cpu - self._adapted_cpu), LEAST_PER_S * elapsed, 1e-3)
        stride = round(self._stride * self._since_adapted / wanted)
        self._since_adapted, self._adapted_at, self._adapted_cpu = 0, now, cpu
        self._set_stride(min(max(1, stride), _LONGEST_STRIDE))

    def _set_stride(self, stride: int) -> None:
        self._stride = stride
        self._strides = cycle([max(1, int(stride * factor + 0.5)) for factor in _FACTORS])
        self._skip = min(self._skip, stride)

    def _stop(self) -> None:
        self._skip, self._is_stopped = sys.maxsize, True
        self._sample, self._counts, self._total = [], {}, 0

    # --- reports ----------------------------------------------------------------------------------------------

    def take(self) -> KeyCounts | None:
        """Return the counts since the last report, or None if no report is due."""
        now = self._clock()
        if now - self._reported_at < REPORT_S or self._is_stopped:
            return None
        self._reported_at = now
        self._count()
        self._adapt(0)
        least, total = LEAST_SHARE * self._total, self._total
        keys = [one for one in nlargest(TOP, self._counts.items(), key=lambda entry: entry[1]) if one[1] >= least]
        groups = nlargest(TOP, enumerate(self._groups.tolist()), key=lambda entry: entry[1])
        found = KeyCounts(
            total,
            [(shortened(key, _KEY_CHARS), int(keys_key_groups([key], self._max_parallelism)[0]), n) for key, n in keys],
            [(group, number) for group, number in groups if number and number >= least],
        )
        self._counts, self._total = {}, 0
        self._groups = np.zeros(self._max_parallelism, np.int64)
        return found if total else None
