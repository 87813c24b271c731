"""`penstock autoscaler` shows the decisions of a job, and those for recorded measurements."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager.autoscaling.recording import record
from tests.unit.jobmanager.autoscaling.measurements import count, source, steady
from tests.unit.rest.fake_gateway import JOB_ID

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.terminal import Terminal


def test_the_wanted_parallelism_the_measurements_and_the_decisions_of_a_job_are_shown(terminal: Terminal) -> None:
    found = terminal("autoscaler", "show", JOB_ID)
    assert found.code == 0, found.err
    facts, measurements, decisions = found.out.split("\n\n")
    assert [line.rstrip().split(maxsplit=1) for line in facts.splitlines()[:3]] == [
        ["mode", "active"],
        ["parallelism", "2, 1 to 128 allowed"],
        ["wanted", "4"],
    ]
    assert "WAITING_FOR_SLOTS: The job has 2 slots." in facts
    assert measurements.splitlines()[1].split() == ["readings", "-", "90", "%", "-", "-", "-", "-", "-"]
    assert decisions.splitlines()[1].split()[2:6] == ["2", "2", "4", "WAITING_FOR_SLOTS"]


def test_the_answer_of_the_rest_api_is_printed_on_request(terminal: Terminal) -> None:
    found = json.loads(terminal("autoscaler", "show", JOB_ID, "--json").out)
    assert (found["wanted"], found["decisions"][0]["slotsAvailable"]) == (4, 2)


def test_the_recording_of_a_job_is_written_to_a_file(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    found = terminal("autoscaler", "record", JOB_ID, str(file))
    assert (found.code, found.out) == (0, f"1 measurements and rescales are in {file}\n"), found.err
    assert file.read_text() == '{"autoscaler": 1}\n{"sample": {}}\n'
    refused = terminal("autoscaler", "record", JOB_ID, str(tmp_path / "missing" / "orders.jsonl"))
    assert refused.code == 2
    assert "pass a path in an existing folder" in refused.err
    assert terminal("autoscaler", "record", "nope", str(file)).code == 1


def test_an_unknown_job_is_refused(terminal: Terminal) -> None:
    found = terminal("autoscaler", "show", "nope")
    assert found.code == 1
    assert "has no job 'nope'" in found.err


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    history = steady(source(), count(busy=0.95), seconds=300)
    path = tmp_path / "orders.jsonl"
    configuration = {"job.autoscaler.enabled": "true", "s3.secret-key": "hunter2"}
    path.write_text("".join(record("orders", configuration, history)), encoding="utf-8")
    return path


def test_the_decisions_that_differ_are_shown(terminal: Terminal, recording: Path) -> None:
    found = terminal("autoscaler", "replay", str(recording))
    assert found.code == 0, found.err
    header, first, last = found.lines
    assert header.split() == ["Time", "Current", "Wanted", "Reason", "Message"]
    assert "TOO_FEW_SAMPLES" in first
    assert "SCALE_UP" in last
    assert "'count' has a load of 95 % at parallelism 4" in last


def test_other_settings_lead_to_other_decisions(terminal: Terminal, recording: Path) -> None:
    found = terminal("autoscaler", "replay", str(recording), "--json", "-D", "job.autoscaler.utilization.max=0.97")
    last = json.loads(found.lines[-1])
    assert (last["reason"], last["wanted"], last["rescales"]) == ("WITHIN_TARGET", 4, False)
    assert {one["name"]: one["busy"] for one in last["inputs"]} == {"source": 0.3, "count": 0.95}


def test_all_decisions_are_shown_on_request(terminal: Terminal, recording: Path) -> None:
    assert len(terminal("autoscaler", "replay", str(recording), "--all").lines) == 1 + 60


def test_a_recording_has_only_the_keys_of_the_autoscaler(recording: Path) -> None:
    assert "hunter2" not in recording.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "line 1 is not a sample or a rescale of a recording"),
        ('{"jobs": []}\n', "line 1 is not the header of a recording"),
        (
            '{"autoscaler": 1}\n{"sample": {"at_ms": 1}}\n',
            "line 2 is not a sample or a rescale of a recording: KeyError",
        ),
        ('{"autoscaler": 1}\n[1]\n', "line 2 is not a sample or a rescale of a recording: it is not an object"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_its_line(
    terminal: Terminal, tmp_path: Path, text: str, error: str
) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(text, encoding="utf-8")
    found = terminal("autoscaler", "replay", str(path))
    assert found.code == 1
    assert error in found.err
    assert "GET /jobs/:id/autoscaler/recording" in found.err


def test_a_missing_file_and_a_misspelt_key_are_refused(terminal: Terminal, recording: Path, tmp_path: Path) -> None:
    assert "cannot be read" in terminal("autoscaler", "replay", str(tmp_path / "missing")).err
    found = terminal("autoscaler", "replay", str(recording), "-D", "job.autoscaler.utilisation.max=0.9")
    assert "did you mean 'job.autoscaler.utilization.max'?" in found.err
