from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import errors
from penstock.common.logs.redaction import is_secret
from penstock.rest import facts
from penstock.rest.errors import http_status
from penstock.rest.views.ids import duration, vertex_id
from penstock.rest.views.metrics import aggregates, parse_subtasks
from penstock.rest.views.states import SUBTASK_STATES, state_counts, vertex_state


@given(st.lists(st.sampled_from(SUBTASK_STATES), min_size=1))
def test_a_vertex_has_a_state_and_every_subtask_is_counted(states: list[str]) -> None:
    assert vertex_state(states) in SUBTASK_STATES
    assert sum(state_counts(states).values()) == len(states)
    assert (vertex_state(states) == "FAILED") == ("FAILED" in states)


@given(st.text(max_size=60))
def test_every_engine_id_becomes_a_vertex_id_in_flinks_form(engine_id: str) -> None:
    shown = vertex_id(engine_id)
    assert len(shown) == 32
    assert set(shown) <= set("0123456789abcdef")
    assert vertex_id(shown) == shown


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(100, 150, 50), (100, facts.NOT_YET, 900), (facts.NOT_YET, facts.NOT_YET, -1)]
)
def test_durations_depend_on_whether_the_job_runs_has_ended_or_has_not_started(
    start: int, end: int, expected: int
) -> None:
    assert duration(start, end, now=1000) == expected


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidJob("x"), 400),
        (errors.RestoreRefused("x"), 400),
        (errors.SnapshotNotFound("x"), 404),
        (errors.SnapshotTorn("x"), 503),
        (errors.NotEnoughSlots("x"), 503),
        (errors.Fenced("x"), 503),
        (errors.PenstockError("x"), 500),
    ],
)
def test_every_error_of_the_engine_has_a_status(error: errors.PenstockError, status: int) -> None:
    assert http_status(error) == status


@pytest.mark.parametrize("key", ["s3.secret-key", "S3.ACCESS-KEY", "a.password", "security.rest.token", "my.apikey"])
def test_keys_of_secrets_are_recognized(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize("key", ["rest.port", "security.rest.token-file", "kubernetes.secret.name", "state.backend"])
def test_other_keys_are_not_secrets(key: str) -> None:
    assert not is_secret(key)


def test_skew_is_zero_for_equal_values_and_grows_with_the_difference() -> None:
    (alike,) = aggregates([{"n": 5}, {"n": 5}], "n", "skew")
    (apart,) = aggregates([{"n": 0}, {"n": 10}], "n", "skew")
    assert (alike.skew, apart.skew) == (0.0, 100.0)


def test_aggregates_without_names_are_listed() -> None:
    assert [found.id for found in aggregates([{"b": 1}, {"a": 2}], None, None)] == ["a", "b"]


def test_no_given_subtasks_select_all() -> None:
    assert parse_subtasks(None) is None
    assert parse_subtasks("") is None
