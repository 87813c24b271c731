"""Decisions of the autoscaler for measurements at one moment. Known failures of other autoscalers are among them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.jobmanager.autoscaling.decide import decide
from penstock.jobmanager.autoscaling.decision import Reason
from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.samples import KeyShare, PastRescale, Sample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from tests.unit.jobmanager.autoscaling.measurements import SETTINGS, count, decision, sample, source, steady


class TestScaleUp:
    def test_the_vertex_with_the_largest_need_decides(self) -> None:
        found = decision(source(busy=0.4), count(busy=0.98))
        assert (found.reason, found.current, found.wanted) == (Reason.SCALE_UP, 4, 6)  # 4 x 0.98 / 0.7
        assert "'count' has a load of 98 %" in found.message

    def test_the_need_follows_the_arrivals_at_the_source_and_not_only_the_rate_that_is_read(self) -> None:
        found = decision(source(busy=0.2), count(busy=1.0), growing_lag=1000.0, seconds=75)
        by_id = {one.id: one for one in found.inputs}
        assert by_id["0"].arrival_rate == pytest.approx(2000)
        assert by_id["1"].target_rate == pytest.approx(2000)
        assert found.wanted >= 12  # 4 x 2 / 0.7

    def test_the_ratio_of_output_and_input_is_part_of_the_need(self) -> None:
        found = decision(
            source(rate=100, busy=0.2, rate_out=1000), count(rate=1000, busy=1.0), growing_lag=100.0, seconds=75
        )
        assert found.inputs[1].target_rate == pytest.approx(2000)

    def test_the_lag_needs_capacity_until_it_is_read(self) -> None:
        calm = decision(source(lag=0.0), count(busy=0.95))
        behind = decision(source(lag=200_000.0), count(busy=0.95))
        assert behind.wanted > calm.wanted
        # 1,000 arrive per second, and 200,000 must be read in 180 s at full speed.
        assert behind.wanted == math.ceil((1000 + (200_000 + 3_000) / 180) / (1000 / 0.95 / 4) / 0.95)

    def test_vertices_of_one_level_share_their_slots(self) -> None:
        other = count(busy=0.5, id="2", name="other")
        found = decision(source(busy=0.1), count(busy=0.48), other)
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 6)

    def test_the_levels_of_the_batched_runner_share_their_slots(self) -> None:
        found = decision(source(busy=0.5), count(busy=0.48), levels_take_turns=True)
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 6)

    def test_two_sources_count_with_their_shares(self) -> None:
        second = source(id="2", name="second", rate=3000.0, rate_out=3000.0)
        joined = count(rate=4000.0, busy=0.95, inputs=("0", "2"))
        found = decision(source(), second, joined, growing_lag=1000.0, seconds=75)
        assert found.inputs[2].target_rate == pytest.approx(5000)

    @pytest.mark.parametrize(("highest", "groups"), [(5, 128), (200, 5)])
    def test_the_maximum_and_the_key_groups_are_limits(self, highest: int, groups: int) -> None:
        settings = AutoscalerSettings(max_parallelism=highest)
        found = decision(source(), count(busy=1.0), settings=settings, max_parallelism=groups)
        assert found.wanted == 5
        at = decision(
            source(parallelism=5),
            count(busy=1.0, parallelism=5),
            settings=settings,
            max_parallelism=groups,
            parallelism=5,
            requested=5,
        )
        assert (at.reason, at.wanted) == (Reason.AT_MAX_PARALLELISM, 5)

    def test_a_parallelism_outside_of_the_limits_is_corrected(self) -> None:
        assert decision(settings=AutoscalerSettings(min_parallelism=6)).wanted == 6
        found = decision(settings=AutoscalerSettings(max_parallelism=2))
        assert (found.reason, found.next) == (Reason.OUTSIDE_LIMITS, 2)

    def test_missing_slots_are_awaited_and_the_wanted_parallelism_is_known(self) -> None:
        found = decision(source(), count(busy=1.0), slots=4)
        assert (found.reason, found.rescales, found.wanted, found.next) == (Reason.WAITING_FOR_SLOTS, False, 6, 4)
        some = decision(source(), count(busy=1.0), slots=5)
        assert (some.reason, some.wanted, some.next) == (Reason.SCALE_UP, 6, 5)

    def test_a_load_that_is_still_changing_is_measured_first(self) -> None:
        history = steady(source(), count(busy=0.6), seconds=1170)
        steady(source(rate=1900, busy=0.6), count(rate=1900, busy=1.0), seconds=30, start=1170, history=history)
        found = decide(SETTINGS, history)
        assert (found.reason, found.rescales) == (Reason.LOAD_IS_CHANGING, False)
        steady(source(rate=1900, busy=0.6), count(rate=1900, busy=1.0), seconds=30, start=1200, history=history)
        assert decide(SETTINGS, history).reason is Reason.SCALE_UP


class TestNoGain:
    def test_one_hot_subtask_is_named_and_nothing_is_rescaled(self) -> None:
        """The mean hides a hot subtask. An autoscaler that uses the mean does nothing, and one that uses the maximum scales for nothing."""
        found = decision(source(), count(busy=0.4, busiest=((2, 1.0), (0, 0.2))), growing_lag=200.0)
        assert (found.reason, found.rescales, found.wanted) == (Reason.HOT_SUBTASK, False, 4)
        assert "Subtask 2 of 'count' is busy for 100 %" in found.message
        assert found.inputs[1].hottest_subtask == 2

    def test_a_moderately_uneven_load_counts_with_its_busiest_subtask(self) -> None:
        found = decision(source(), count(busy=0.75, busiest=((2, 0.95),)))
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 6)

    def test_a_source_never_gets_more_subtasks_than_splits(self) -> None:
        """A source with 15 partitions must not get 180 subtasks."""
        found = decision(source(busy=0.98, splits=15), count(busy=0.01), growing_lag=50_000.0, seconds=75)
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 15)
        at = decision(
            source(busy=0.98, splits=15, parallelism=15),
            count(busy=0.01, parallelism=15),
            parallelism=15,
            requested=15,
            growing_lag=50_000.0,
            seconds=75,
        )
        assert (at.reason, at.wanted) == (Reason.SPLITS, 15)
        assert "15 splits" in at.message

    def test_other_vertices_may_get_more_subtasks_than_the_source_has_splits(self) -> None:
        found = decision(source(busy=0.1, splits=4), count(busy=1.0), growing_lag=1000.0, seconds=75)
        assert found.wanted >= 12

    def test_a_subtask_with_more_splits_than_the_others_is_not_hot(self) -> None:
        uneven = source(busy=0.5, splits=5, busiest=((0, 0.97),))
        found = decision(uneven, count(busy=0.1))
        assert found.reason is not Reason.HOT_SUBTASK
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 5)

    def test_a_vertex_with_its_own_parallelism_is_not_relieved_by_a_rescale(self) -> None:
        found = decision(source(), count(busy=1.0, is_fixed=True, parallelism=2))
        assert (found.reason, found.wanted) == (Reason.FIXED_PARALLELISM, 4)
        assert "the program sets its parallelism to 2" in found.message

    def test_a_slow_external_system_is_recognized_by_the_last_rescale(self) -> None:
        history = steady(source(), count(busy=1.0), seconds=600)
        history.add_rescale(PastRescale(603_000, 4, 8, 3_000))
        eight: dict[str, Any] = {"attempt": 2, "parallelism": 8, "requested": 8}
        slow = (source(parallelism=8), count(busy=1.0, parallelism=8))
        steady(*slow, seconds=120, start=603, history=history, growing_lag=500.0, **eight)
        found = decide(SETTINGS, history)
        assert (found.reason, found.wanted) == (Reason.INEFFECTIVE, 8)
        assert "'count' limits the job, and its capacity did not grow with the last scale-up" in found.message
        effective = steady(source(), count(busy=1.0), seconds=600)
        effective.add_rescale(PastRescale(603_000, 4, 8, 3_000))
        fast = (source(rate=2000, parallelism=8), count(rate=2000, busy=1.0, parallelism=8))
        steady(*fast, seconds=120, start=603, history=effective, growing_lag=500.0, **eight)
        assert decide(SETTINGS, effective).reason is Reason.SCALE_UP


def keys(
    share: float, *, key: str | None = "'user-7'", subtask: int = 2, group_share: float = 0.0
) -> tuple[KeyShare, ...]:
    return (KeyShare(key, 70, subtask, share), KeyShare(None, 70, subtask, max(share, group_share)))


class TestHotKeys:
    def test_the_key_and_its_share_are_named_if_more_parallelism_would_not_help(self) -> None:
        hot = count(busy=0.4, busiest=((2, 1.0), (0, 0.2)), keys=keys(0.63))
        found = decision(source(), hot, growing_lag=200.0)
        assert (found.reason, found.rescales, found.wanted) == (Reason.HOT_KEY, False, 4)
        assert "The key 'user-7' has 63 % of the records of 'count'. Subtask 2 processes all of them" in found.message
        one = found.inputs[1]
        assert (one.hot_key, one.hot_key_group, one.hot_key_subtask) == ("'user-7'", 70, 2)
        assert one.hot_key_share == pytest.approx(0.63)
        assert found.to_json()["hotKey"] == {
            "vertex": "1",
            "name": "count",
            "key": "'user-7'",
            "keyGroup": 70,
            "subtask": 2,
            "share": 0.63,
        }

    def test_a_hot_key_is_named_also_if_all_records_are_read_in_time(self) -> None:
        found = decision(source(), count(busy=0.4, busiest=((2, 0.97), (0, 0.2)), keys=keys(0.5)))
        assert found.reason is Reason.HOT_KEY

    def test_the_job_is_scaled_only_as_far_as_it_relieves_the_subtask_of_the_key(self) -> None:
        """The subtask of a key with half of the records processes 75 % of them at parallelism 2, and 62.5 % at 4."""
        two: dict[str, Any] = {"parallelism": 2, "requested": 2}
        hot = count(busy=0.67, busiest=((1, 1.0), (0, 0.33)), keys=keys(0.5, subtask=1), parallelism=2)
        found = decision(source(parallelism=2), hot, growing_lag=1000.0, seconds=75, **two)
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 4)
        assert found.inputs[1].load == pytest.approx(2.0 * 0.625 / 0.75)
        hot = count(busy=0.4, busiest=((2, 1.0), (0, 0.2)), keys=keys(0.5))
        at = decision(source(), hot, growing_lag=1000.0, seconds=75)
        assert (at.reason, at.wanted) == (Reason.HOT_KEY, 4)

    def test_the_limit_of_the_parallelism_is_not_blamed_for_a_hot_key(self) -> None:
        hot = count(busy=0.4, busiest=((2, 1.0),), keys=keys(0.63))
        settings = AutoscalerSettings(max_parallelism=4)
        assert decision(source(), hot, growing_lag=200.0, settings=settings).reason is Reason.HOT_KEY

    def test_a_key_group_is_named_if_several_of_its_keys_are_frequent(self) -> None:
        hot = count(busy=0.4, busiest=((2, 1.0),), keys=keys(0.2, group_share=0.55))
        found = decision(source(), hot, growing_lag=200.0)
        assert found.reason is Reason.HOT_KEY
        assert "Key group 70 has 55 % of the records" in found.message
        assert found.to_json()["hotKey"]["key"] is None

    def test_an_ordinary_key_changes_no_decision(self) -> None:
        usual = decision(source(), count(busy=0.98))
        found = decision(source(), count(busy=0.98, keys=keys(0.03)))
        assert (found.reason, found.wanted) == (usual.reason, usual.wanted)
        assert found.to_json()["hotKey"] is None
        assert found.inputs[1].hot_key == "'user-7'"

    def test_a_hot_subtask_is_not_explained_by_a_key_with_few_records(self) -> None:
        found = decision(source(), count(busy=0.3, busiest=((2, 1.0), (0, 0.1)), keys=keys(0.05)), growing_lag=200.0)
        assert found.reason is Reason.HOT_SUBTASK

    def test_a_cheap_key_with_many_records_does_not_prevent_a_scale_up(self) -> None:
        """The shares count records. The busy time shows that the subtask of the key is not the busiest."""
        cheap = count(busy=0.97, busiest=((0, 1.0), (2, 0.4)), keys=keys(0.4))
        found = decision(source(), cheap)
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 6)

    def test_a_hot_key_does_not_delay_a_scale_down(self) -> None:
        found = decision(source(busy=0.02), count(busy=0.05, busiest=((2, 0.15),), keys=keys(0.7)))
        assert (found.reason, found.wanted) == (Reason.SCALE_DOWN, 1)

    def test_a_recording_contains_the_keys(self) -> None:
        history = steady(source(), count(keys=keys(0.5)), seconds=10)
        again = Sample.from_json(json.loads(json.dumps(history.samples[-1].to_json())))
        assert again == history.samples[-1]
        former = history.samples[-1].to_json()
        for vertex in former["vertices"]:
            del vertex["keys"]
        assert Sample.from_json(former).vertices[1].keys == ()


class TestLag:
    def test_a_job_that_reads_its_lag_in_time_is_not_rescaled(self) -> None:
        """While a job catches up it is busy all the time, which does not mean that it is too small."""
        found = decision(source(rate=2000, lag=100_000.0), count(rate=2000, busy=1.0), growing_lag=-500.0, seconds=75)
        assert (found.reason, found.wanted) == (Reason.CATCHING_UP, 4)

    def test_the_job_is_not_scaled_down_while_its_lag_is_above_the_target(self) -> None:
        found = decision(source(lag=40_000.0, busy=0.05), count(busy=0.1))
        assert (found.reason, found.wanted) == (Reason.LAG_ABOVE_TARGET, 4)

    def test_a_source_that_reads_in_other_threads_counts_with_its_observed_rate(self) -> None:
        """Its busy time misses the work of other threads, so it seems to have much capacity."""
        found = decision(source(busy=0.05, lag=40_000.0), count(busy=0.2), growing_lag=1000.0, seconds=75)
        assert found.inputs[0].is_observed
        assert found.reason is Reason.SCALE_UP
        assert found.wanted >= 12

    def test_a_busy_operator_is_not_scaled_down_because_of_a_wrong_output_ratio(self) -> None:
        """The ratio of input and output is unusable for an operator that collects records. It is busy, so it needs its subtasks."""
        collects = source(rate=1000, rate_out=0.0, busy=0.2)
        found = decision(collects, count(rate=1.0, busy=1.0))
        assert found.wanted >= 4
        assert found.reason is not Reason.SCALE_DOWN

    def test_an_unknown_lag_leads_to_steps(self) -> None:
        found = decision(source(lag=None), count(busy=1.0))
        assert (found.reason, found.wanted) == (Reason.SCALE_UP, 6)


class TestScaleDown:
    def test_the_load_must_be_low_for_the_whole_interval(self) -> None:
        low = (source(busy=0.05), count(busy=0.2))
        assert decision(*low, seconds=1200).reason is Reason.SCALE_DOWN
        found = decision(*low, seconds=500)
        assert (found.reason, found.rescales, found.wanted) == (Reason.SCALE_DOWN_DELAYED, False, 2)
        history = steady(*low, seconds=900)
        steady(source(), count(busy=0.7), seconds=65, start=900, history=history)
        steady(*low, seconds=300, start=965, history=history)
        assert decide(SETTINGS, history).reason is Reason.SCALE_DOWN_DELAYED

    def test_the_job_is_not_scaled_down_below_the_minimum(self) -> None:
        settings = AutoscalerSettings(min_parallelism=3)
        assert decision(source(busy=0.01), count(busy=0.01), settings=settings).wanted == 3

    def test_a_load_between_the_limits_is_left_alone(self) -> None:
        for busy in (0.41, 0.7, 0.89):
            assert decision(source(), count(busy=busy)).reason is Reason.WITHIN_TARGET

    def test_it_waits_after_a_rescale(self) -> None:
        history = steady(source(busy=0.05), count(busy=0.2), seconds=300)
        history.add_rescale(PastRescale(303_000, 2, 4, 3_000))
        low = (source(busy=0.05), count(busy=0.2))
        steady(*low, seconds=400, start=303, history=history, attempt=2)
        assert decide(SETTINGS, history).reason is Reason.SCALE_DOWN_DELAYED
        steady(*low, seconds=3300, start=703, history=history, attempt=2)
        assert decide(SETTINGS, history).reason is Reason.SCALE_DOWN


class TestBudget:
    def test_a_second_rescale_in_an_hour_needs_a_budget_or_an_urgent_reason(self) -> None:
        def after_a_rescale(seconds: int, busy: float) -> History:
            history = steady(source(), count(busy=busy), seconds=300)
            history.add_rescale(PastRescale(303_000, 2, 4, 2_800))
            return steady(source(), count(busy=busy), seconds=seconds, start=303, history=history, attempt=2)

        found = decide(SETTINGS, after_a_rescale(1_200, 0.93))
        assert (found.reason, found.rescales, found.wanted) == (Reason.BUDGET_SPENT, False, 6)
        assert found.cost is not None
        assert (found.cost.paused_ms, found.cost.budget_ms) == (2_800, 3_600)
        assert decide(SETTINGS, after_a_rescale(3_700, 0.93)).reason is Reason.SCALE_UP
        assert decide(SETTINGS, after_a_rescale(1_200, 0.99)).reason is Reason.SCALE_UP

    def test_the_measured_pauses_are_the_cost(self) -> None:
        history = steady(source(), count(busy=0.99), seconds=300)
        for at in (100_000, 200_000):
            history.add_rescale(PastRescale(at, 4, 4, 20_000))
        found = decide(SETTINGS, history)
        assert found.cost is not None
        assert found.cost.pause_ms == 20_000
        assert found.cost.delayed_records == pytest.approx(20_000)


class TestUnusableMeasurements:
    @pytest.mark.parametrize(
        ("broken", "text"),
        [
            ({"busy": float("nan")}, "busy = nan"),
            ({"rate_in": float("inf")}, "rate_in = inf"),
            ({"rate_in": -5.0}, "a negative rate_in (-5)"),
            ({"lag": -1.0}, "a negative lag"),
            ({"parallelism": 0}, "a parallelism of 0"),
            ({"busiest": ((1, float("nan")),)}, "busy of subtask 1 = nan"),
        ],
    )
    def test_impossible_values_lead_to_no_decision(self, broken: dict[str, Any], text: str) -> None:
        found = decision(replace(source(), **broken), count(busy=1.0))
        assert (found.reason, found.wanted) == (Reason.BROKEN_METRICS, 4)
        assert f"'source' reports {text}" in found.message

    def test_records_without_busy_time_lead_to_no_decision(self) -> None:
        found = decision(source(busy=0.0), count(busy=0.0))
        assert (found.reason, found.wanted) == (Reason.BROKEN_METRICS, 4)

    def test_missing_vertices_lead_to_no_decision(self) -> None:
        history = steady(seconds=1200)
        history.add_sample(sample(1205, source()))
        assert decide(SETTINGS, history).reason is Reason.BROKEN_METRICS

    def test_a_job_without_input_keeps_its_parallelism(self) -> None:
        found = decision(source(rate=0.0, busy=0.0), count(rate=0.0, busy=0.0))
        assert (found.reason, found.wanted) == (Reason.NO_INPUT, 4)
        stuck = decision(source(rate=0.0, busy=0.0, lag=70.0), count(rate=0.0, busy=0.0))
        assert "although 70 records are unread" in stuck.message

    def test_a_job_that_does_not_run_is_left_alone(self) -> None:
        assert decision(source(), count(busy=1.0), status="RESTARTING").reason is Reason.NOT_RUNNING

    def test_a_restart_begins_a_new_window(self) -> None:
        history = steady(source(), count(busy=1.0), seconds=600)
        steady(source(), count(busy=1.0), seconds=55, start=620, history=history, attempt=2)
        found = decide(SETTINGS, history)
        assert (found.reason, found.wanted) == (Reason.RECENT_RESTART, 4)
        steady(source(), count(busy=1.0), seconds=30, start=675, history=history, attempt=2)
        assert decide(SETTINGS, history).reason is Reason.SCALE_UP

    def test_a_rescale_begins_a_new_window(self) -> None:
        history = steady(source(), count(busy=1.0), seconds=600)
        history.add_rescale(PastRescale(603_000, 2, 4, 3_000))
        steady(source(), count(busy=1.0), seconds=30, start=603, history=history, attempt=2)
        assert decide(SETTINGS, history).reason is Reason.RECENT_RESCALE

    def test_a_clock_that_jumps_begins_a_new_window(self) -> None:
        for start in (100, 4_000):
            history = steady(source(), count(busy=1.0), seconds=600)
            steady(source(), count(busy=1.0), seconds=20, start=start, history=history)
            assert decide(SETTINGS, history).reason is Reason.CLOCK_JUMP

    def test_a_job_with_fewer_slots_than_requested_is_left_alone(self) -> None:
        found = decision(source(), count(busy=1.0), requested=8)
        assert found.reason is Reason.FEWER_SLOTS

    def test_long_epochs_with_few_samples_fill_the_window(self) -> None:
        """A saturated job has long epochs, so its samples are far apart. It needs the autoscaler most."""
        history = History(SETTINGS)
        for at in range(90, 301, 90):
            history.add_sample(sample(at, source(), count(busy=1.0), interval_ms=90_000))
        assert decide(SETTINGS, history).reason is Reason.SCALE_UP

    def test_the_first_seconds_are_no_basis(self) -> None:
        assert decision(source(), count(busy=1.0), seconds=40).reason is Reason.TOO_FEW_SAMPLES


class TestSettings:
    def test_the_defaults_are_those_of_the_options(self) -> None:
        assert AutoscalerSettings.from_configuration({}) == AutoscalerSettings()

    def test_older_keys_and_the_switch_of_flinks_operator_are_known(self) -> None:
        found = AutoscalerSettings.from_configuration(
            {"job.autoscaler.target.utilization": "0.6", "job.autoscaler.scaling.enabled": "false"}
        )
        assert (found.target, found.is_active) == (0.6, False)

    @pytest.mark.parametrize(
        "values",
        [
            {"job.autoscaler.utilization.target": "0.95"},
            {"job.autoscaler.vertex.min-parallelism": "300"},
            {"job.autoscaler.metrics.window": "5s"},
        ],
    )
    def test_contradictions_are_refused(self, values: dict[str, str]) -> None:
        with pytest.raises(InvalidJob, match="autoscaler"):
            AutoscalerSettings.from_configuration(values)
