from __future__ import annotations

import pytest

from penstock.common.errors import InvalidJob
from penstock.metrics.scope import VARIABLES, ScopeFormats, ScopeKind

ALL = {name: f"{name}-value" for names in VARIABLES.values() for name in names}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ScopeKind.JOB_MANAGER, "host-value.jobmanager"),
        (ScopeKind.JOB_MANAGER_JOB, "host-value.jobmanager.job_name-value"),
        (ScopeKind.TASK_MANAGER, "host-value.taskmanager.tm_id-value"),
        (ScopeKind.TASK_MANAGER_JOB, "host-value.taskmanager.tm_id-value.job_name-value"),
        (ScopeKind.TASK, "host-value.taskmanager.tm_id-value.job_name-value.task_name-value.subtask_index-value"),
        (
            ScopeKind.OPERATOR,
            "host-value.taskmanager.tm_id-value.job_name-value.operator_name-value.subtask_index-value",
        ),
    ],
)
def test_default_formats_are_those_of_the_field(kind: ScopeKind, expected: str) -> None:
    assert ".".join(ScopeFormats.from_configuration({}).components(kind, ALL)) == expected


@pytest.mark.parametrize("key", ["metrics.scope.tm-job", "metrics.scope.tm.job"])
def test_both_spellings_of_a_key_are_accepted(key: str) -> None:
    formats = ScopeFormats.from_configuration({key: "<tm_id>.<job_id>"})
    assert formats.components(ScopeKind.TASK_MANAGER_JOB, ALL) == ["tm_id-value", "job_id-value"]


def test_the_job_id_distinguishes_two_copies_of_a_job() -> None:
    formats = ScopeFormats.from_configuration({"metrics.scope.operator": "<job_id>.<operator_name>"})
    identifiers = {
        formats.identifier(formats.components(ScopeKind.OPERATOR, {"job_id": job, "operator_name": "map"}), "n")
        for job in ("a" * 32, "b" * 32)
    }
    assert len(identifiers) == 2


def test_an_unknown_variable_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidJob, match=r"metrics\.scope\.tm is '<task_name>'.*<task_name>") as caught:
        ScopeFormats.from_configuration({"metrics.scope.tm": "<task_name>"})
    assert "<host>, <tm_id>" in caught.value.remedy


def test_an_empty_delimiter_is_refused() -> None:
    with pytest.raises(InvalidJob, match="delimiter"):
        ScopeFormats.from_configuration({"metrics.scope.delimiter": ""})


def test_the_delimiter_never_appears_inside_a_part() -> None:
    formats = ScopeFormats.from_configuration({"metrics.scope.delimiter": "/"})
    assert formats.identifier(["a/b", "c.d"], "e") == "a_b/c.d/e"
