"""`penstock logs` shows the end of the logs, optionally of one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal
    from tests.unit.rest.fake_gateway import FakeGateway


def test_all_logs_are_shown_with_the_name_of_their_process(terminal: Terminal) -> None:
    out = terminal("logs").out
    assert "jobmanager | 2018-10-17 21:13:14,000 INFO penstock.job: job is RUNNING" in out
    assert "tm-0 | ValueError: 7x" in out


def test_one_log_is_shown_unchanged(terminal: Terminal) -> None:
    out = terminal("logs", "tm-0").out
    assert out.startswith("2018-10-17 21:13:15,000 INFO my.module")


def test_records_of_an_operator_are_shown_with_all_their_lines(terminal: Terminal) -> None:
    out = terminal("logs", "--operator", "Window", "tm-0").out.splitlines()
    assert len(out) == 3
    assert out[0].endswith("[orders: Window #1, attempt 2]: late")
    assert out[2] == "ValueError: 7x"


def test_stdout_is_shown_on_request(terminal: Terminal) -> None:
    assert terminal("logs", "--stdout", "tm-0").out == "printed\n"


def test_an_unknown_taskmanager_is_an_error(terminal: Terminal) -> None:
    found = terminal("logs", "tm-9")
    assert found.code == 1
    assert "the cluster has no TaskManager tm-9" in found.err


def test_only_the_end_of_a_long_log_is_shown(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.log_files["tm-0"]["taskmanager.log"] = b"0123456789abcde\n" * 10_000
    assert len(terminal("logs", "-n", "1", "tm-0").out) == 1024
