"""The assignment of state at a restore: by uid and by key group, at any parallelism."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.files.manifest import Manifest, OperatorInfo, OperatorState, SourceState, SplitPosition
from penstock.checkpoint.recovery.restore import RestorePlan, plan_restore
from penstock.common.errors import RestoreRefused, SnapshotTorn
from penstock.state.key_groups import key_group_range
from tests.unit.checkpoint.support import manifest

MAX = 128


def operator(uid: str, parallelism: int = 1, max_parallelism: int = MAX) -> OperatorInfo:
    return OperatorInfo(uid, uid.title(), parallelism, max_parallelism)


def keyed_state(parallelism: int, max_parallelism: int = MAX) -> list[dict[str, Any]]:
    return [
        {
            "key_groups": list(key_group_range(subtask, parallelism, max_parallelism)),
            "files": [{"path": f"shared/{subtask}", "size": 1, "checksum": ""}],
            "states": {"seen": {}},
        }
        for subtask in range(parallelism)
    ]


def snapshot(*operators: OperatorInfo, **fields: Any) -> Manifest:
    states = {info.uid: OperatorState(keyed=keyed_state(info.parallelism, info.max_parallelism)) for info in operators}
    options: dict[str, Any] = {"operators": list(operators), "states": states, "sources": {}} | fields
    return manifest(7, **options)


class TestMatching:
    def test_state_is_matched_by_uid_at_any_position_in_the_graph(self) -> None:
        plan = plan_restore(
            snapshot(operator("count")), [operator("new-before"), operator("count"), operator("new-behind")]
        )
        assert plan.new_uids == ["new-before", "new-behind"]
        assert plan.dropped == []
        assert len(plan.of("count", 0).keyed) == 1
        assert plan.of("new-before", 0).is_empty

    def test_state_without_an_operator_is_refused_and_both_sides_are_shown(self) -> None:
        stored = snapshot(operator("count"), operator("dedup"), job_name="airports")
        with pytest.raises(RestoreRefused) as caught:
            plan_restore(stored, [operator("count"), operator("dedupe"), operator("fresh")])
        text = str(caught.value)
        assert "'dedup' (Dedup): keyed state seen" in text
        assert "was it renamed to 'dedupe'?" in text
        assert "operators of this job with state in it: 'count'" in text
        assert "operators of this job without state in it: 'dedupe', 'fresh'" in text
        assert "allow_non_restored_state=['dedup'] (--allow-non-restored-state dedup)" in text

    def test_state_that_may_be_dropped_by_name_is_dropped_and_listed(self) -> None:
        stored = snapshot(operator("count"), operator("dedup"), operator("alert"))
        with pytest.raises(RestoreRefused) as caught:
            plan_restore(stored, [operator("count")], ["dedup"])
        assert "'alert'" in caught.value.message
        assert "'dedup'" not in caught.value.message
        plan = plan_restore(stored, [operator("count")], ["dedup", "alert"])
        assert [dropped.uid for dropped in plan.dropped] == ["alert", "dedup"]
        assert [dropped.uid for dropped in plan_restore(stored, [operator("count")], True).dropped] == [
            "alert",
            "dedup",
        ]

    def test_permission_to_drop_state_does_not_drop_matching_state(self) -> None:
        plan = plan_restore(snapshot(operator("count")), [operator("count")], True)
        assert plan.dropped == []
        assert plan.of("count", 0).keyed

    def test_an_operator_without_state_may_be_removed(self) -> None:
        stored = snapshot(
            operator("count"),
            states={"count": OperatorState(keyed=keyed_state(1)), "map": OperatorState(operator=[{}])},
        )
        assert plan_restore(stored, [operator("count")]).dropped == []

    def test_every_kind_of_state_counts(self) -> None:
        stored = snapshot(
            states={"window": OperatorState(operator=[{"buffer": {"mode": "split", "items": ["x"]}}])},
            sources={"readings": SourceState([SplitPosition("a", {}, 5)])},
            commits={"sink": [{"path": "part-0"}]},
        )
        with pytest.raises(RestoreRefused) as caught:
            plan_restore(stored, [])
        for part in ("operator state buffer", "positions of 1 splits", "1 pending commits"):
            assert part in caught.value.message

    def test_empty_operator_state_does_not_count(self) -> None:
        stored = snapshot(states={"gone": OperatorState(operator=[{"buffer": {"mode": "split", "items": []}}])})
        assert plan_restore(stored, []).dropped == []

    def test_a_snapshot_of_another_job_is_named_as_such(self) -> None:
        with pytest.raises(RestoreRefused, match=r"nothing matches: the snapshot belongs to job .* \('airports'\)"):
            plan_restore(snapshot(operator("count")), [operator("other")])


class TestSourcesAndSinks:
    def test_positions_and_commits_are_assigned_by_uid(self) -> None:
        stored = snapshot(
            sources={"readings": SourceState([SplitPosition("a", {}, 5)], {"seen": ["a"]})}, commits={"sink": ["p"]}
        )
        plan = plan_restore(stored, [operator("readings"), operator("sink", 4)])
        assert plan.sources["readings"].splits[0].position == 5
        assert plan.commits == {"sink": ["p"]}
        assert plan.new_uids == []


class TestParallelism:
    def test_a_different_max_parallelism_is_refused(self) -> None:
        with pytest.raises(
            RestoreRefused,
            match=r"(?s)max parallelism 256, but its state .* was written with 128.*set_max_parallelism\(128\)",
        ):
            plan_restore(snapshot(operator("count")), [operator("count", max_parallelism=256)])

    def test_an_operator_without_keyed_state_may_change_its_max_parallelism(self) -> None:
        stored = snapshot(operator("map"), states={"map": OperatorState(operator=[{"x": [1]}])})
        plan = plan_restore(stored, [operator("map", max_parallelism=256)])
        assert plan.of("map", 0).operator == [{"x": [1]}]

    def test_a_parallelism_above_the_maximum_is_refused(self) -> None:
        stored = snapshot(operator("count", 2, 4))
        with pytest.raises(RestoreRefused, match="parallelism 5, above its max parallelism 4"):
            plan_restore(stored, [operator("count", 5, 4)])

    def test_handles_are_assigned_by_key_group(self) -> None:
        plan = plan_restore(snapshot(operator("count", 2)), [operator("count", 4)])
        assert [[handle["files"][0]["path"] for handle in plan.of("count", i).keyed] for i in range(4)] == [
            ["shared/0"],
            ["shared/0"],
            ["shared/1"],
            ["shared/1"],
        ]
        plan = plan_restore(snapshot(operator("count", 4)), [operator("count", 3)])
        assert [len(plan.of("count", i).keyed) for i in range(3)] == [2, 2, 2]

    def test_operator_state_of_all_subtasks_is_given_to_all(self) -> None:
        stored = snapshot(operator("map", 2), states={"map": OperatorState(operator=[{"x": [0]}, {"x": [1]}])})
        plan = plan_restore(stored, [operator("map", 3)])
        assert [plan.of("map", i).operator for i in range(3)] == [[{"x": [0]}, {"x": [1]}]] * 3

    @pytest.mark.parametrize("ranges", [[[0, 63]], [[0, 63], [65, 127]], [[0, 64], [64, 127]], [[0, 127], [0, 127]]])
    def test_a_gap_or_overlap_of_key_groups_is_found(self, ranges: list[list[int]]) -> None:
        keyed = [{"key_groups": groups, "files": [{"path": "shared/x", "size": 1}], "states": {}} for groups in ranges]
        stored = snapshot(operator("count"), states={"count": OperatorState(keyed=keyed)})
        with pytest.raises(SnapshotTorn, match="is missing or has two states"):
            plan_restore(stored, [operator("count")])


def restore_and_snapshot(
    stored: Manifest, state: dict[str, dict[int, str]], parallelism: int
) -> tuple[Manifest, dict[str, dict[int, str]]]:
    """Read the owned key groups from the handles and write one file with them, as state backends do.

    `state` maps a path to a key group to a value.
    """
    info = stored.operators[0]
    plan: RestorePlan = plan_restore(stored, [operator("count", parallelism, info.max_parallelism)])
    written: dict[str, dict[int, str]] = {}
    keyed = []
    for subtask in range(parallelism):
        own = key_group_range(subtask, parallelism, info.max_parallelism)
        values: dict[int, str] = {}
        for handle in plan.of("count", subtask).keyed:
            for group, value in state[handle["files"][0]["path"]].items():
                if group in own:
                    assert group not in values, "a group came from two handles"
                    values[group] = value
        path = f"shared/{parallelism}-{subtask}"
        written[path] = values
        keyed.append({"key_groups": list(own), "files": [{"path": path, "size": 1}], "states": {}})
    return snapshot(
        operator("count", parallelism, info.max_parallelism), states={"count": OperatorState(keyed=keyed)}
    ), written


@given(st.integers(1, 300), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_repeated_rescaling_loses_no_state(max_parallelism: int, path: list[int]) -> None:
    path = [min(parallelism, max_parallelism) for parallelism in path]
    everything = {group: f"value-{group}" for group in range(max_parallelism)}
    first = snapshot(operator("count", 1, max_parallelism))
    stored, state = first, {"shared/0": everything}
    for parallelism in [*path, *reversed(path), 1]:
        stored, state = restore_and_snapshot(stored, state, parallelism)
        merged: dict[int, str] = {}
        for part in state.values():
            assert not merged.keys() & part.keys()
            merged |= part
        assert merged == everything


@given(st.integers(1, 200), st.data())
def test_a_subtask_receives_only_the_handles_that_it_needs(max_parallelism: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, max_parallelism))
    new = data.draw(st.integers(1, max_parallelism))
    plan = plan_restore(snapshot(operator("count", old, max_parallelism)), [operator("count", new, max_parallelism)])
    for subtask in range(new):
        own = key_group_range(subtask, new, max_parallelism)
        groups = [
            set(range(handle["key_groups"][0], handle["key_groups"][1] + 1))
            for handle in plan.of("count", subtask).keyed
        ]
        mine = set(range(own.start, own.end + 1))
        assert all(part & mine for part in groups)
        assert mine <= set().union(*groups)
