"""RocksDB's numbers as metrics, under Flink's names. They are read at the end of an epoch.

- A property belongs to a state: `<operator>.<state>.rocksdb.<property>`.
- A ticker counts actions of the operator's database: `<operator>.rocksdb.<ticker>`.

`state.backend.rocksdb.metrics.<name>: true` turns on a metric. All are off by default. A property costs some
microseconds per state and epoch. Tickers together cost 0.3 ms per operator and epoch. Counting also takes a few percent
of RocksDB's time.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.state.rocksdb.options import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocksdict import Rdict

    from penstock.metrics import MetricGroup

METRIC_OPTIONS = "metrics."
PROPERTIES = frozenset(
    {
        "actual-delayed-write-rate",
        "background-errors",
        "block-cache-capacity",
        "block-cache-pinned-usage",
        "block-cache-usage",
        "compaction-pending",
        "cur-size-active-mem-table",
        "cur-size-all-mem-tables",
        "estimate-live-data-size",
        "estimate-num-keys",
        "estimate-pending-compaction-bytes",
        "estimate-table-readers-mem",
        "is-write-stopped",
        "live-sst-files-size",
        "mem-table-flush-pending",
        "num-deletes-active-mem-table",
        "num-deletes-imm-mem-tables",
        "num-entries-active-mem-table",
        "num-entries-imm-mem-tables",
        "num-immutable-mem-table",
        "num-live-versions",
        "num-running-compactions",
        "num-running-flushes",
        "num-snapshots",
        "size-all-mem-tables",
        "total-sst-files-size",
    }
)
"""Properties that RocksDB provides as one number per column family."""
FILES = "num-files-at-level"
"""Property with one number for each level."""
LEVELS = 7
TICKERS = {
    "block-cache-hit": "rocksdb.block.cache.hit",
    "block-cache-miss": "rocksdb.block.cache.miss",
    "bloom-filter-useful": "rocksdb.bloom.filter.useful",
    "bloom-filter-full-positive": "rocksdb.bloom.filter.full.positive",
    "bloom-filter-full-true-positive": "rocksdb.bloom.filter.full.true.positive",
    "bytes-read": "rocksdb.bytes.read",
    "bytes-written": "rocksdb.bytes.written",
    "compaction-read-bytes": "rocksdb.compact.read.bytes",
    "compaction-write-bytes": "rocksdb.compact.write.bytes",
    "iter-bytes-read": "rocksdb.db.iter.bytes.read",
    "stall-micros": "rocksdb.stall.micros",
}
"""Flink's names, and the names in RocksDB's statistics."""
AS_VARIABLE = "column-family-as-variable"
"""Option that makes the state's name the variable `column_family` (a label in Prometheus).

The metric's name then omits it.
"""
_CACHE_S = 0.05
"""Seconds for which statistics are reused. The gauges therefore read them only once per epoch."""


def metrics_of(options: Mapping[str, Any]) -> frozenset[str]:
    """Return the metrics that the options turn on.

    Raises:
        InvalidJob: the metric does not exist, or a value is neither true nor false.

    >>> sorted(metrics_of({"metrics.block-cache-usage": "true", "metrics.num-snapshots": "false", "thread.num": 2}))
    ['block-cache-usage']
    """
    given = {key.removeprefix(PREFIX): value for key, value in options.items()}
    chosen = set()
    for key, value in given.items():
        if not key.startswith(METRIC_OPTIONS):
            continue
        name, text = key.removeprefix(METRIC_OPTIONS), str(value).strip().lower()
        if text not in ("true", "false"):
            raise InvalidJob(f"{PREFIX}{key} is {value!r}", remedy="write true or false")
        if text == "true" and name not in PROPERTIES | TICKERS.keys() | {FILES, AS_VARIABLE}:
            known = ", ".join(sorted((*PROPERTIES, *TICKERS, FILES)))
            raise InvalidJob(f"{PREFIX}{key}: the metric does not exist", remedy=f"choose from {known}")
        if text == "true":
            chosen.add(name)
    return frozenset(chosen)


def report_state(group: MetricGroup, state: str, chosen: frozenset[str], family: Callable[[], Rdict | None]) -> None:
    """Register the gauges of one state.

    Args:
        family: returns the column family; None means that it is not open.
    """
    metric_group = group.add_group("column_family", state) if AS_VARIABLE in chosen else group.add_group(state)
    metric_group = metric_group.add_group("rocksdb")
    for name in chosen & PROPERTIES:
        metric_group.gauge(name, _Property(family, name, is_text=False))
    for level in range(LEVELS) if FILES in chosen else ():
        metric_group.gauge(f"{FILES}{level}", _Property(family, f"{FILES}{level}", is_text=True))


def report_database(group: MetricGroup, chosen: frozenset[str], statistics: Callable[[], str]) -> None:
    """Register the gauges of the tickers.

    Args:
        statistics: returns RocksDB's text; empty means that no database is open.
    """
    counts = _Counts(statistics)
    for name in sorted(chosen & TICKERS.keys()):
        group.add_group("rocksdb").gauge(name, partial(counts.of, TICKERS[name]))


class _Counts:
    def __init__(self, statistics: Callable[[], str]) -> None:
        self._statistics = statistics
        self._read_at = -_CACHE_S
        self._counts: dict[str, int] = {}

    def of(self, ticker: str) -> int | None:
        now = time.monotonic()
        if now - self._read_at >= _CACHE_S:
            self._counts = counts_in(self._statistics())
            self._read_at = now
        return self._counts.get(ticker)


def counts_in(statistics: str) -> dict[str, int]:
    """Return the tickers of RocksDB's statistics, without histograms.

    >>> counts_in("rocksdb.bytes.read COUNT : 12\\nrocksdb.db.get.micros P50 : 1.0 COUNT : 3 SUM : 4")
    {'rocksdb.bytes.read': 12}
    """
    found = {}
    for line in statistics.splitlines():
        name, separator, count = line.partition(" COUNT : ")
        if separator and " " not in name and count.isdigit():
            found[name] = int(count)
    return found


class _Property:
    def __init__(self, family: Callable[[], Rdict | None], name: str, *, is_text: bool) -> None:
        self._family = family
        self._name = f"rocksdb.{name}"
        self._is_text = is_text

    def __call__(self) -> int | None:
        family = self._family()
        if family is None:
            return None
        value = family.property_value(self._name) if self._is_text else family.property_int_value(self._name)
        return None if value is None else int(value)
