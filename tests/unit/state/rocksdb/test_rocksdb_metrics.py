"""RocksDB's numbers as metrics: disabled by default, with one group for each state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.functions.operator_context import SystemClock
from penstock.metrics.key import decode_key
from penstock.metrics.task import TaskMetrics
from penstock.state.factory import create_backend
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange
from penstock.state.rocksdb import metrics
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.metrics import PROPERTIES, TICKERS, metrics_of
from tests.unit.state.support import VALUE, Storage, at


class Reported:
    """The gauges of a backend with some values in one state."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.metrics = TaskMetrics()
        self.backend: Any = create_backend(
            "rocksdb",
            key_group_range=KeyGroupRange(0, 127),
            max_parallelism=128,
            key_context=KeyContext(),
            clock=SystemClock(),
            work_dir=str(folder),
            options={f"metrics.{name.replace('_', '-')}": value for name, value in options.items()},
            metrics=self.metrics.operator_group("count-1", "Count"),
        )
        state: Any = self.backend.get_state(VALUE)
        for key in range(100):
            at(self.backend, key)
            state.update(f"value {key}")

    def gauges(self) -> dict[tuple[tuple[tuple[str, str | None], ...], str], Any]:
        found = {decode_key(key): value for key, value in self.metrics.snapshot().get("g", {}).items()}
        assert {key.operator for key in found} <= {"count-1"}
        return {(key.groups, key.name): value for key, value in found.items()}


@pytest.fixture
def made() -> Iterator[list[Reported]]:
    """A list of gauges that are closed at the end."""
    backends: list[Reported] = []
    yield backends
    for one in backends:
        one.backend.close()


def test_no_number_is_reported_by_default(tmp_path: Path, made: list[Reported]) -> None:
    made.append(Reported(tmp_path / "db", block_cache_usage="false"))
    assert made[0].gauges() == {}


def test_a_state_has_the_configured_numbers(tmp_path: Path, made: list[Reported]) -> None:
    made.append(
        Reported(tmp_path / "db", estimate_num_keys="true", num_files_at_level="true", block_cache_usage="TRUE")
    )
    gauges = made[0].gauges()
    group = ((VALUE.name, None), ("rocksdb", None))
    assert gauges[group, "estimate-num-keys"] == 100
    assert gauges[group, "num-files-at-level0"] == 0
    assert gauges[group, "block-cache-usage"] > 0
    assert len(gauges) == 9


def test_every_number_exists_in_this_rocksdb(tmp_path: Path, made: list[Reported]) -> None:
    made.append(Reported(tmp_path / "db", **{name.replace("-", "_"): "true" for name in PROPERTIES}))
    gauges = made[0].gauges()
    assert {name for _, name in gauges} == PROPERTIES
    assert [name for (_, name), value in gauges.items() if not isinstance(value, int)] == []


ROCKSDB = (("rocksdb", None),)


def test_tickers_count_the_operations_of_the_operators_database(
    tmp_path: Path, made: list[Reported], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_CACHE_S", 0.0)
    made.append(Reported(tmp_path / "db", **{name.replace("-", "_"): "true" for name in TICKERS}))
    backend, before = made[0].backend, made[0].gauges()
    assert {(group, name) for group, name in before} == {(ROCKSDB, name) for name in TICKERS}
    assert [name for (_, name), value in before.items() if not isinstance(value, int)] == []
    assert before[ROCKSDB, "bytes-written"] > 100 * len("value 1")
    backend.snapshot(1).run(Storage())  # flushes to files, so that reads use the cache
    state = backend.get_state(VALUE)
    for _ in range(2):
        for key in range(100):
            at(backend, key)
            assert state.value() == f"value {key}"
    after = made[0].gauges()
    assert after[ROCKSDB, "bytes-read"] > before[ROCKSDB, "bytes-read"]
    assert after[ROCKSDB, "block-cache-hit"] > before[ROCKSDB, "block-cache-hit"]
    assert after[ROCKSDB, "block-cache-miss"] > 0


def test_a_database_counts_nothing_by_default(tmp_path: Path, made: list[Reported]) -> None:
    made.append(Reported(tmp_path / "db", block_cache_usage="true"))
    assert made[0].backend._statistics() == ""


def test_all_tickers_of_an_epoch_are_read_together(
    tmp_path: Path, made: list[Reported], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_CACHE_S", 60.0)
    read = []
    statistics = Database.statistics
    monkeypatch.setattr(Database, "statistics", lambda self: read.append(1) or statistics(self))
    made.append(Reported(tmp_path / "db", bytes_read="true", bytes_written="true", stall_micros="true"))
    assert len(made[0].gauges()) == 3
    assert len(read) == 1


def test_the_name_of_a_state_may_be_a_variable(tmp_path: Path, made: list[Reported]) -> None:
    made.append(Reported(tmp_path / "db", num_snapshots="true", column_family_as_variable="true"))
    assert list(made[0].gauges()) == [((("column_family", VALUE.name), ("rocksdb", None)), "num-snapshots")]


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("metrics.block-cache-hits", "true", "block-cache-hit, block-cache-miss"),
        ("metrics.num-snapshots", "yes", "true or false"),
    ],
)
def test_a_wrong_option_is_refused(name: str, value: str, named: str) -> None:
    with pytest.raises(InvalidJob, match=named):
        metrics_of({name: value})
