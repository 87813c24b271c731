from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import app
from tests.unit.rest.fake_gateway import FAILED, JOB_ID, OLD_ID, RUNNING

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal
    from tests.unit.rest.fake_gateway import FakeGateway

SAVEPOINT = f"s3://b/savepoint-{JOB_ID[:6]}-0123456789ab"


def test_list_shows_start_time_id_name_and_state(terminal: Terminal) -> None:
    outcome = terminal("list", "-r")
    assert outcome.code == 0
    title, job, end = outcome.lines
    assert title == "------------------ Running/Restarting Jobs -------------------"
    assert re.fullmatch(rf"\d\d\.10\.2018 \d\d:\d\d:14 : {JOB_ID} : Socket Window WordCount \(RUNNING\)", job)
    assert end == "-" * 62


def test_list_has_sections_for_waiting_and_ended_jobs(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.all_jobs = {OLD_ID: FAILED}
    assert terminal("list").lines == ["No running jobs.", "No scheduled jobs."]
    assert terminal("list", "-a").lines[-2].endswith(f"{OLD_ID} : Old <b>job</b> (FAILED)")


def test_a_name_selects_the_running_job_or_the_one_that_ended_last(terminal: Terminal, gateway: FakeGateway) -> None:
    earlier = replace(FAILED, id="e" * 32, name=RUNNING.name, end=FAILED.end - 1)
    last = replace(FAILED, name=RUNNING.name)
    gateway.all_jobs = {last.id: last, earlier.id: earlier, JOB_ID: RUNNING}
    assert JOB_ID in terminal("info", RUNNING.name).out
    del gateway.all_jobs[JOB_ID]
    assert last.id in terminal("info", RUNNING.name).out
    assert terminal("checkpoints", RUNNING.name).code == 0


def test_an_ended_job_accepts_no_requests(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.all_jobs = {OLD_ID: FAILED}
    outcome = terminal("stop", FAILED.name)
    assert outcome.code == 1
    assert "FAILED" in outcome.err
    assert "has no job" not in outcome.err


def test_a_savepoint_prints_its_path(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.polls_until_done = 3
    assert terminal("savepoint", JOB_ID, "s3://b").lines == [
        f"Triggering savepoint for job {JOB_ID}.",
        "Waiting for response...",
        f"Savepoint completed. Path: {SAVEPOINT}",
        "You can resume your program from this savepoint with the run command.",
    ]


def test_a_checkpoint_prints_its_number(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.polls_until_done = 3
    [line] = terminal("checkpoint", JOB_ID[:8]).lines
    assert re.fullmatch(rf"Checkpoint \d+ of job {JOB_ID} is complete\.", line)
    assert [call[0] for call in gateway.calls] == ["checkpoint"]


def test_a_savepoint_without_any_directory_names_the_remedy(terminal: Terminal) -> None:
    outcome = terminal("savepoint", JOB_ID)
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "error [INVALID_JOB]: no savepoint directory is known",
        "  remedy: give one, or set state.savepoints.dir",
    ]


def test_a_savepoint_is_disposed_of(terminal: Terminal, gateway: FakeGateway) -> None:
    assert terminal("savepoint", "-d", "s3://b/savepoint-x").lines == [
        "Disposing savepoint 's3://b/savepoint-x'.",
        "Waiting for response...",
        "Savepoint 's3://b/savepoint-x' disposed.",
    ]
    assert gateway.calls == [("dispose", "s3://b/savepoint-x")]


def test_cancel_ends_a_job(terminal: Terminal, gateway: FakeGateway) -> None:
    assert terminal("cancel", JOB_ID).lines == [f"Cancelling job {JOB_ID}.", f"Cancelled job {JOB_ID}."]
    assert gateway.calls == [("cancel",)]


@pytest.mark.parametrize(
    "words", [("-s", "s3://b", JOB_ID), (JOB_ID, "-s", "s3://b"), ("-s", "s3://b", "Socket Window WordCount")]
)
def test_cancel_takes_a_savepoint_on_request(terminal: Terminal, gateway: FakeGateway, words: tuple[str, ...]) -> None:
    assert terminal("cancel", *words).lines == [
        f"Cancelling job {JOB_ID} with savepoint to s3://b.",
        f"Cancelled job {JOB_ID}. Savepoint stored in {SAVEPOINT}.",
    ]
    assert gateway.calls == [("savepoint", "s3://b", True), ("cancel",)]


def test_cancel_takes_a_savepoint_in_the_default_directory(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.savepoint_directory = "s3://b"
    assert terminal("cancel", "-s", JOB_ID).lines[1] == f"Cancelled job {JOB_ID}. Savepoint stored in {SAVEPOINT}."


def test_a_failed_savepoint_leaves_the_job_running(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.savepoint_failure = "s3://b is not writable"
    outcome = terminal("cancel", "-s", "s3://b", JOB_ID)
    assert outcome.code == 1
    assert f"the savepoint of job {JOB_ID} failed: s3://b is not writable" in outcome.err
    assert gateway.all_jobs[JOB_ID].state == "RUNNING"


def test_stop_drains_a_job(terminal: Terminal, gateway: FakeGateway) -> None:
    assert terminal("stop", "--drain", "-p", "s3://b", JOB_ID).lines == [
        f'Draining job "{JOB_ID}" with a savepoint.',
        f"Savepoint completed. Path: {SAVEPOINT}",
    ]
    gateway.all_jobs[JOB_ID] = RUNNING
    assert terminal("stop", "-p", "s3://b", JOB_ID).lines[0] == f'Suspending job "{JOB_ID}" with a savepoint.'
    assert gateway.calls == [("stop", "s3://b", True), ("stop", "s3://b", False)]


@pytest.mark.parametrize("command", ["rescale", "modify"])
def test_rescale_changes_the_parallelism(terminal: Terminal, gateway: FakeGateway, command: str) -> None:
    assert terminal(command, JOB_ID, "-p", "4").lines == [
        f"Modify job {JOB_ID}.",
        f"Rescaled job {JOB_ID}. Its new parallelism is 4.",
    ]
    assert gateway.calls == [("rescale", 4)]


def test_an_impossible_rescale_prints_the_reason(terminal: Terminal) -> None:
    outcome = terminal("rescale", JOB_ID, "-p", "16")
    assert outcome.code == 1
    assert "parallelism 16 needs 16 slots, the cluster has 8" in outcome.err


def test_a_wait_that_times_out_shows_how_to_query_the_request(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.polls_until_done = 1000
    outcome = terminal("rescale", JOB_ID, "-p", "4", "--timeout", "0.2")
    assert outcome.code == 1
    assert "has not ended after 0.2 s" in outcome.err
    assert "/rescaling/" in outcome.err


@pytest.mark.parametrize("text", ["bc0b2ad61ecd4a615d92ce25390f61ad", "bc0b", "BC0B", "Socket Window WordCount"])
def test_a_job_is_found_by_id_prefix_or_name(terminal: Terminal, text: str) -> None:
    assert JOB_ID in terminal("info", text).out


def test_the_error_for_an_unknown_job_lists_the_known_ones(terminal: Terminal) -> None:
    outcome = terminal("info", "nope")
    assert outcome.code == 1
    assert "has no job 'nope'" in outcome.err
    assert f"{JOB_ID} (Socket Window WordCount, RUNNING)" in outcome.err


def test_a_name_of_two_jobs_is_ambiguous(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.all_jobs[OLD_ID] = replace(RUNNING, id=OLD_ID)
    outcome = terminal("cancel", RUNNING.name)
    assert outcome.code == 1
    assert "matches more than one job" in outcome.err
    assert not gateway.calls


def test_info_shows_vertices_operators_and_the_last_savepoint(terminal: Terminal) -> None:
    out = terminal("info", JOB_ID).out
    for text in ("Source: readings -> Map", "s3://b/savepoint-x", "win ", "2, at most 128", "executor 1 was lost"):
        assert text in out


def test_info_shows_how_long_ago_a_running_job_started_and_how_long_an_ended_job_lasted(terminal: Terminal) -> None:
    assert re.search(r"started +\S+ \S+, .+ ago *\n", terminal("info", JOB_ID).out)
    assert re.search(r"started +\S+ \S+, lasted \S+", terminal("info", FAILED.id).out)


def test_names_are_not_interpreted_as_markup(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.all_jobs[JOB_ID] = replace(RUNNING, name="[red]count[/red] :smile:")
    assert "[red]count[/red] :smile:" in terminal("info", JOB_ID).out
    assert "[red]count[/red] :smile:" in terminal("top", JOB_ID, "--once").out


def test_checkpoints_are_listed(terminal: Terminal) -> None:
    lines = terminal("checkpoints", JOB_ID).lines
    assert lines[0] == "12 triggered, 1 in progress, 10 completed, 1 failed, 1 restored"
    assert [line.split()[0] for line in lines[2:]] == ["5", "4", "3", "2", "1"]
    assert "storage away" in lines[3]
    assert lines[6].rstrip().endswith("s3://b/j/chk-1 (removed)")


def test_the_checkpoints_of_a_job_without_any_are_empty(terminal: Terminal) -> None:
    assert terminal("checkpoints", OLD_ID).lines == ["0 triggered, 0 in progress, 0 completed, 0 failed, 0 restored"]


def test_cluster_shows_the_cluster(terminal: Terminal, gateway: FakeGateway) -> None:
    outcome = terminal("cluster")
    assert "2 TaskManagers, 6 of 8 slots free" in outcome.lines[0]
    assert outcome.lines[-1].split() == ["tm-1", "host-1:7101", "4", "3", "1.0", "GB"]
    assert terminal("cluster", "stop").code == 0
    assert gateway.was_shut_down.wait(10)


def test_an_unknown_action_on_the_cluster_is_refused(terminal: Terminal) -> None:
    outcome = terminal("cluster", "start")
    assert outcome.code == 2
    assert "the action 'start' does not exist" in outcome.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("cancel", "a", "b"), "cancel takes one job, not a b"),
        (("cancel", "-s", "a", "b", "c"), "one job and one folder"),
        (("savepoint",), "savepoint needs a job"),
        (("savepoint", "verify"), "verify takes one path"),
        (("savepoint", "-d", "s3://x", "job"), "-d takes one path"),
    ],
)
def test_wrong_arguments_are_explained(offline: Terminal, words: tuple[str, ...], text: str) -> None:
    outcome = offline(*words)
    assert outcome.code == 2
    assert text in outcome.err
    assert "remedy: write `penstock" in outcome.err


def test_the_error_without_a_master_names_url_and_remedy(offline: Terminal) -> None:
    outcome = offline("list")
    assert outcome.code == 1
    assert outcome.out == ""
    head, remedy = outcome.err.splitlines()
    assert head.startswith("error [MASTER_UNREACHABLE]: the JobManager at http://localhost:1 does not respond: ")
    assert (
        remedy
        == "  remedy: start a JobManager there, or pass the address of another one with -m URL or PENSTOCK_MASTER"
    )
    assert "localhost:2" in offline("list", "-m", "localhost:2").err


def test_no_arguments_show_the_help_and_the_version_option_the_version(offline: Terminal) -> None:
    assert "savepoint" in offline().out
    assert offline("--version").out == "penstock 0.2.0\n"


def test_every_command_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[4] / "docs" / "cli.md").read_text()
    names = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    assert not [name for name in names if f"`{name}" not in page and f"penstock {name}" not in page]
