from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.commands.roles import spread
from penstock.common.errors import InvalidJob
from tests.unit.cli.fake_launch import FakeLaunch

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> FakeLaunch:
    fake = FakeLaunch()
    monkeypatch.setitem(sys.modules, "penstock.jobmanager.process.launch", fake)
    monkeypatch.setitem(sys.modules, "penstock.jobmanager.process.worker.worker_launch", fake)
    return fake


def test_a_master_receives_all_arguments_of_the_operator(offline: Terminal, launch: FakeLaunch) -> None:
    outcome = offline(
        "master", "--entry", "shop.orders:main", "--restore", "s3://b/sp", "--allow-non-restored-state", "old", "older",
        "--job-id", "j-1", "--parallelism", "8", "-D", "x=y", "--", "--topic", "orders", "--fresh",
    )  # fmt: skip
    assert outcome.code == 3
    assert launch.calls == [
        (
            "run_master",
            {
                "entry": "shop.orders:main",
                "args": ["--topic", "orders", "--fresh"],
                "restore": "s3://b/sp",
                "restore_latest": False,
                "fresh": False,
                "when_released": False,
                "allow_non_restored_state": ["old", "older"],
                "job_id": "j-1",
                "parallelism": 8,
                "configuration": {"x": "y"},
            },
        )
    ]


@pytest.mark.parametrize(
    ("ways", "text"),
    [
        ((), "no option says where the state of the job comes from"),
        (("--fresh", "--restore-latest"), "--restore-latest and --fresh exclude each other"),
        (("--fresh", "--restore", "s3://x"), "--restore and --fresh exclude each other"),
        (("--fresh", "--when-released"), "--fresh and --when-released exclude each other"),
    ],
)
def test_a_master_starts_in_exactly_one_way(
    offline: Terminal, launch: FakeLaunch, ways: tuple[str, ...], text: str
) -> None:
    outcome = offline("master", "--entry", "job.py", *ways)
    assert outcome.code == 2
    assert text in outcome.err
    assert not launch.calls


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("check",), "penstock check --entry job.py"),
        (("check", "shop.py"), "penstock check --entry shop.py"),
        (("check", "-p", "2", "--", "--entry"), "penstock check --entry job.py"),
        (("master",), "penstock master --entry job.py --fresh"),
    ],
)
def test_a_missing_program_has_an_example_as_remedy(
    offline: Terminal, launch: FakeLaunch, words: tuple[str, ...], remedy: str
) -> None:
    outcome = offline(*words)
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        "error [USAGE]: the option --entry is missing. It names the program",
        f"  remedy: {remedy}",
    ]
    assert offline("check", "--help").code == 0


def test_a_worker_receives_its_arguments(offline: Terminal, launch: FakeLaunch) -> None:
    assert offline("worker", "--master", "my-job-master:7077", "--slots", "2").code == 0
    assert launch.calls == [("run_worker", {"master": "my-job-master:7077", "slots": 2})]


@pytest.mark.parametrize("master", ["my-job-master", ":7077", "host:port"])
def test_a_worker_needs_host_and_port(offline: Terminal, launch: FakeLaunch, master: str) -> None:
    outcome = offline("worker", "--master", master)
    assert outcome.code == 2
    assert "is not HOST:PORT" in outcome.err


def check(offline: Terminal, *words: str) -> tuple[int, dict[str, Any]]:
    outcome = offline("check", "--entry", "job.py", "--parallelism", "2", "--format", "json", *words)
    return outcome.code, json.loads(outcome.out)


def test_a_check_without_problems_prints_json_and_exits_with_0(offline: Terminal, launch: FakeLaunch) -> None:
    launch.report = {
        "ok": True,
        "problems": [],
        "warnings": [],
        "state_changes": [],
        "not_looked_at": [],
        "graph": {"nodes": []},
    }
    code, report = check(offline, "--against", "s3://b/sp", "--allow-non-restored-state", "old", "--", "a", "b")
    assert (code, report) == (0, launch.report)
    assert launch.calls == [
        (
            "check",
            {
                "entry": "job.py",
                "args": ["a", "b"],
                "parallelism": 2,
                "against": "s3://b/sp",
                "allow_non_restored_state": ["old"],
                "configuration": {},
            },
        )
    ]


def test_a_check_with_problems_exits_with_1(offline: Terminal, launch: FakeLaunch) -> None:
    problem = {
        "code": "RESTORE_REFUSED",
        "message": "no operator 'old'",
        "remedy": "allow it",
        "operator": "old",
        "location": "job.py:3",
    }
    launch.report = {
        "ok": False,
        "problems": [problem],
        "warnings": [],
        "state_changes": [],
        "not_looked_at": [],
        "graph": None,
    }
    assert check(offline) == (1, launch.report)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InvalidJob("no sink", remedy="add one", operator="Map"), "INVALID_JOB", "no sink"),
        (ImportError("no module named shop"), "PROGRAM_RAISED", "ImportError: no module named shop"),
    ],
)
def test_an_exception_is_a_problem_and_the_output_is_still_json(
    offline: Terminal, launch: FakeLaunch, error: Exception, code: str, text: str
) -> None:
    launch.error = error
    exit_code, report = check(offline)
    assert exit_code == 1
    (problem,) = report["problems"]
    assert problem["code"] == code
    assert text in problem["message"]
    assert set(problem) == {"code", "message", "remedy", "operator", "location"}


@pytest.mark.parametrize("error", [InvalidJob("no access with hunter22"), OSError("no access with hunter22")])
def test_a_check_hides_the_secrets_of_its_environment(
    offline: Terminal, launch: FakeLaunch, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The operator shows the report in conditions and does not know the secrets."""
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter22")
    launch.error = error
    (problem,) = check(offline)[1]["problems"]
    assert "no access with ******" in problem["message"]


def test_a_check_can_be_formatted_for_people(offline: Terminal, launch: FakeLaunch) -> None:
    launch.report = {
        "ok": True,
        "problems": [],
        "graph": {"nodes": [{"description": "Source -> Map", "parallelism": 2}]},
    }
    outcome = offline("check", "--entry", "job.py")
    assert outcome.lines == ["  Source -> Map  x2", "The program can be started."]
    launch.error = InvalidJob("no sink", remedy="add one", operator="Map")
    assert offline("check", "--entry", "job.py").lines == ["INVALID_JOB: no sink (operator Map)", "  remedy: add one"]


@given(
    st.lists(st.text("ab", min_size=1), min_size=1), st.lists(st.sampled_from(["--x", "--y"])), st.lists(st.text("-ab"))
)
def test_expansion_of_arguments_keeps_every_value_and_all_other_arguments(
    values: list[str], others: list[str], behind: list[str]
) -> None:
    words = spread(["--uid", *values, *others, "--", *behind], ["-u", "--uid"])
    head, rest = words[: 2 * len(values)], words[2 * len(values) :]
    assert head[0::2] == ["--uid"] * len(values)
    assert head[1::2] == values
    assert rest == [*others, "--", *behind]


@pytest.mark.parametrize("command", [("check",), ("master", "--fresh")])
def test_a_uid_and_the_parallelism_have_the_short_options_of_run(
    offline: Terminal, launch: FakeLaunch, command: tuple[str, ...]
) -> None:
    outcome = offline(*command, "--entry", "job.py", "-p", "3", "-n", "gone", "-n", "old", "older", "--", "-n", "x")
    [(_, arguments)] = launch.calls
    assert arguments["allow_non_restored_state"] == ["gone", "old", "older"], outcome.err
    assert (arguments["parallelism"], arguments["args"]) == (3, ["-n", "x"])
