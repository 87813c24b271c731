"""Examples of state, checkpoints and upgrades, as whole jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from penstock.common.errors import RestoreRefused
from penstock.datastream.functions import BroadcastProcessFunction, ProcessFunction, RuntimeContext
from penstock.testing import CRASH, JobHarness
from tests.unit.testing.functions import (
    HOUR,
    THRESHOLDS,
    DynamicThresholds,
    HighTemperatureCount,
    KeyedAndOperatorCounts,
    SelfCleaningAlert,
    TemperatureAlert,
    add,
    by_parity,
    first,
)


@pytest.fixture(params=[1, 2, 3], ids=["alone", "two subtasks", "three subtasks"])
def parallelism(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def last_of_each(records: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return dict(records)


def test_sums_continue_after_a_crash_without_lost_or_repeated_records(parallelism: int) -> None:
    with JobHarness(parallelism) as harness:
        numbers = harness.source("numbers")
        harness.collect(numbers.map(by_parity).key_by(first).reduce(add).uid("sums"), "sums")
        harness.push("numbers", 1, 2, 3, 4, 5)
        harness.snapshot()
        assert last_of_each(harness.take("sums")) == {"even": 6, "odd": 9}
        harness.push("numbers", 6, 7)
        assert last_of_each(harness.take("sums")) == {"even": 12, "odd": 16}
        harness.crash()
        assert last_of_each(harness.outputs("sums")) == {"even": 12, "odd": 16}
        assert len(harness.outputs("sums")) == 7


def test_sums_in_a_checkpoint_contain_exactly_the_records_before_its_barriers(parallelism: int) -> None:
    """The checkpoint follows 3 numbers of one source and 4 of the other. Even is 8 and odd is 8."""
    with JobHarness(parallelism) as harness:
        left, right = harness.source("left"), harness.source("right")
        sums = left.union(right).map(by_parity).key_by(first).reduce(add).uid("sums")
        harness.collect(sums.filter(lambda s: s[0] == "even"), "even")
        harness.collect(sums.filter(lambda s: s[0] == "odd"), "odd")
        harness.push("left", 1, 2, 3)
        harness.push("right", 1, 2, 3, 4)
        harness.snapshot()
        assert (harness.take("even")[-1], harness.take("odd")[-1]) == (("even", 8), ("odd", 8))
        harness.push("left", 4)
        harness.push("right", 5, 6)
        expected = harness.take("even"), harness.take("odd")
        assert expected == ([("even", 12), ("even", 18)], [("odd", 13)])
        harness.crash()
        assert harness.outputs("even")[-2:] == expected[0]
        assert harness.outputs("odd")[-1:] == expected[1]


class Entries(ProcessFunction):
    """A function that stores its values in operator list state. "?" emits (subtask, stored values)."""

    def __init__(self, *, union: bool) -> None:
        self.union = union

    def open(self, runtime_context: RuntimeContext) -> None:
        store = runtime_context.get_operator_state_store()
        self.entries = store.get_union_list_state("all", str) if self.union else store.get_list_state("own", str)
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: tuple[int, str], ctx: Any) -> Iterator[Any]:
        if value[1] == "?":
            yield self.subtask, sorted(self.entries)
        else:
            self.entries.append(value[1])


def spread(value: int, partitions: int) -> int:
    return value % partitions


@pytest.mark.parametrize("union", [False, True], ids=["list", "union"])
@pytest.mark.parametrize("new", [2, 8])
def test_operator_list_state_is_distributed_or_united(new: int, *, union: bool) -> None:
    """The values a to f are on 3 subtasks. Two subtasks have 3 each, and two of eight subtasks have none.
    Union gives all 6 to all."""
    with JobHarness(3) as harness:
        values = harness.source("values").partition_custom(spread, first)
        harness.collect(values.process(Entries(union=union)).uid("entries"), "held")
        harness.push("values", *enumerate("abcdef"))
        snapshot = harness.snapshot()
        harness.restore(snapshot, parallelism=new)
        harness.push("values", *((n, "?") for n in range(new)))
        restored = dict(harness.outputs("held"))
    assert sorted(restored) == list(range(new))
    if union:
        assert all(entries == list("abcdef") for entries in restored.values())
    else:
        assert sorted(chain.from_iterable(restored.values())) == list("abcdef")
        assert Counter(map(len, restored.values())) == ({3: 2} if new == 2 else {1: 6, 0: 2})


class Ruled(BroadcastProcessFunction):
    """A function that emits (subtask, its rules)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.subtask, dict(ctx.get_broadcast_state(THRESHOLDS).items())

    def process_broadcast_element(self, value: tuple[str, float], ctx: Any) -> None:
        ctx.get_broadcast_state(THRESHOLDS).put(*value)


@pytest.mark.parametrize("new", [1, 2, 5])
def test_every_subtask_has_all_broadcast_state_after_a_rescale(new: int) -> None:
    with JobHarness(3) as harness:
        values = harness.source("values").partition_custom(spread, first)
        rules = harness.source("rules").broadcast(THRESHOLDS)
        harness.collect(values.connect(rules).process(Ruled()).uid("ruled"), "known")
        harness.push("rules", ("a", 1.0), ("b", 2.0))
        harness.run()
        harness.rescale(new)
        harness.push("rules", ("c", 3.0))
        harness.run()
        harness.push("values", *((n, "?") for n in range(new)))
        known = {"a": 1.0, "b": 2.0, "c": 3.0}
        assert dict(harness.outputs("known")) == dict.fromkeys(range(new), known)


@pytest.mark.parametrize("new", [1, 2, 5])
def test_keyed_state_moves_by_key_group(parallelism: int, new: int) -> None:
    keys = [f"key-{n}" for n in range(40)]
    with JobHarness(parallelism) as harness:
        pairs = harness.source("pairs")
        harness.collect(pairs.key_by(first).reduce(add).uid("sums"), "sums")
        harness.push("pairs", *((key, n) for n, key in enumerate(keys)))
        harness.restore(harness.snapshot(), parallelism=new)
        assert harness.parallelism == new
        assert harness.state_size("sums") == len(keys)
        harness.take("sums")
        harness.push("pairs", *((key, 100) for key in keys))
        assert sorted(harness.take("sums")) == sorted((key, n + 100) for n, key in enumerate(keys))


def test_temperature_alert_survives_a_crash(parallelism: int) -> None:
    """The crash is between the readings."""
    with JobHarness(parallelism) as harness:
        readings = harness.source("readings")
        harness.collect(readings.key_by(first).process(TemperatureAlert()).uid("alertFunc"), "alerts")
        harness.push("readings", ("id", 50.0), ("id", 54.9))
        harness.snapshot()
        harness.push("readings", CRASH, ("id", 61.0))
        assert harness.outputs("alerts") == [("id", 61.0, 54.9)]
        assert harness.restarts == 1


def test_high_temperature_count_survives_rescaling() -> None:
    """The count is 23, at the parallelisms 1, 4 and 2."""
    with JobHarness(1) as harness:
        readings = harness.source("readings").rebalance()
        harness.collect(readings.process(HighTemperatureCount()).uid("counts"), "counts")
        harness.push("readings", *[("id", 121.0)] * 23, ("id", 120.0))
        assert harness.take("counts")[-1] == (0, 23)
        harness.restore(harness.snapshot(), parallelism=4)
        harness.rescale(2)
        harness.push("readings", *[("id", 121.0)] * 2)
        assert sum(last_of_each(harness.take("counts")).values()) == 25


def test_dynamic_thresholds(parallelism: int) -> None:
    """The default 4.0 is raised to 5.0, lowered to 1.2 and removed. Broadcast state survives a crash and a new
    parallelism."""
    with JobHarness(parallelism) as harness:
        readings, thresholds = harness.source("readings"), harness.source("thresholds")
        rules = thresholds.broadcast(THRESHOLDS)
        alerts = readings.key_by(first).connect(rules).process(DynamicThresholds()).uid("alerts")
        harness.collect(alerts, "alerts")
        harness.push("readings", ("sensor_1", 10.0), ("sensor_1", 41.0))
        assert harness.take("alerts") == [("sensor_1", 41.0, 10.0)]
        harness.push("thresholds", ("sensor_1", 5.0))
        harness.push("readings", ("sensor_1", 190.0))
        assert harness.take("alerts") == []
        snapshot = harness.snapshot()
        harness.push("thresholds", ("sensor_1", 1.2))
        harness.push("readings", ("sensor_1", 230.0))
        assert harness.take("alerts") == [("sensor_1", 230.0, 190.0)]
        harness.crash()
        assert harness.outputs("alerts")[1:] == [("sensor_1", 230.0, 190.0)]
        harness.restore(snapshot, parallelism=4)
        assert harness.outputs("alerts")[1:] == [("sensor_1", 230.0, 190.0)]
        harness.push("thresholds", ("sensor_1", 0.5))
        harness.push("readings", ("sensor_1", 600.0))
        assert harness.take("alerts") == []


def test_keyed_and_operator_counts() -> None:
    with JobHarness(1) as harness:
        readings = harness.source("readings")
        harness.collect(readings.key_by(first).process(KeyedAndOperatorCounts()).uid("counts"), "counts")
        harness.push("readings", ("a", 11.0), ("b", 12.0), ("a", 10.0), ("a", 13.0))
        assert harness.take("counts") == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3)]
        harness.snapshot()
        harness.push("readings", ("b", 20.0))
        expected = harness.take("counts")
        assert expected == [("b", 2, 4)]
        harness.crash()
        assert harness.outputs("counts")[3:] == expected


def test_self_cleaning_alert(parallelism: int) -> None:
    """The next reading after one hour of silence causes no alert, and no state is left."""
    with JobHarness(parallelism) as harness:
        readings = harness.source("readings")
        harness.collect(readings.key_by(first).process(SelfCleaningAlert()).uid("alerts"), "alerts")
        harness.advance_watermark("readings", 0)
        harness.push("readings", ("a", 10.0), ("b", 10.0), timestamp=1)
        assert harness.state_size("alerts") > 0
        harness.advance_watermark("readings", HOUR - 1)
        harness.push("readings", ("a", 20.0), timestamp=HOUR)
        assert harness.take("alerts") == [("a", 20.0, 10.0)]
        harness.snapshot()
        harness.crash()
        harness.advance_watermark("readings", HOUR)
        harness.push("readings", ("b", 20.0), timestamp=HOUR + 1)
        assert harness.take("alerts") == []
        harness.advance_watermark("readings", 3 * HOUR)
        assert harness.state_size("alerts") == 0


def alert_job(uid: str | None, *, before: bool = False, after: bool = False, alert: bool = True) -> Any:
    """Return the job of the temperature alert, optionally with operators that the first version does not have."""

    def build(harness: JobHarness) -> None:
        stream = harness.source("readings")
        if before:
            stream = stream.map(lambda reading: (reading[0], reading[1] + 0.0))
        if alert:
            stream = stream.key_by(first).process(TemperatureAlert())
            if uid is not None:
                stream = stream.uid(uid)
        if after:
            stream = stream.map(lambda found: found)
        harness.collect(stream, "alerts")

    return build


@pytest.fixture
def snapshot() -> Iterator[Any]:
    """A snapshot of the alert job after one reading."""
    with JobHarness() as harness:
        alert_job("alertFunc")(harness)
        harness.push("readings", ("id", 50.0))
        yield harness.snapshot()


@pytest.mark.parametrize("changes", [{}, {"before": True}, {"after": True}, {"before": True, "after": True}], ids=str)
def test_state_is_found_by_uid_when_the_program_changes(snapshot: Any, changes: dict[str, bool]) -> None:
    with JobHarness.restore_into(snapshot, alert_job("alertFunc", **changes), parallelism=2) as harness:
        harness.push("readings", ("id", 61.0))
        assert harness.outputs("alerts") == [("id", 61.0, 50.0)]


@pytest.mark.parametrize("uid", [None, "alertFunction"])
def test_state_of_another_uid_is_refused(snapshot: Any, uid: str | None) -> None:
    with pytest.raises(RestoreRefused, match="alertFunc") as caught:
        JobHarness.restore_into(snapshot, alert_job(uid))
    assert "allow_non_restored_state=['alertFunc']" in caught.value.remedy


def test_state_that_is_no_longer_needed_is_dropped_by_name(snapshot: Any) -> None:
    without = alert_job(None, alert=False)
    with pytest.raises(RestoreRefused, match="alertFunc"):
        JobHarness.restore_into(snapshot, without)
    with pytest.raises(RestoreRefused, match="alertFunc"):
        JobHarness.restore_into(snapshot, without, allow_non_restored=["another"])
    with JobHarness.restore_into(snapshot, without, allow_non_restored=["alertFunc"]) as harness:
        harness.push("readings", ("id", 61.0))
        assert harness.outputs("alerts") == [("id", 61.0)]


def test_another_max_parallelism_is_refused(snapshot: Any) -> None:
    with pytest.raises(RestoreRefused, match="max parallelism 64"):
        JobHarness.restore_into(snapshot, alert_job("alertFunc"), max_parallelism=64)
