"""`penstock logs` shows the end of the logs, by operator if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal
    from tests.unit.rest.fake_gateway import FakeGateway


def test_all_logs_come_with_the_name_of_who_wrote_them(terminal: Terminal) -> None:
    out = terminal("logs").out
    assert "jobmanager | 2018-10-17 21:13:14,000 INFO penstock.job: job is RUNNING" in out
    assert "tm-0 | ValueError: 7x" in out


def test_one_log_comes_as_it_is(terminal: Terminal) -> None:
    out = terminal("logs", "tm-0").out
    assert out.startswith("2018-10-17 21:13:15,000 INFO my.module")


def test_records_of_an_operator_come_with_all_their_lines(terminal: Terminal) -> None:
    out = terminal("logs", "--operator", "Window", "tm-0").out.splitlines()
    assert len(out) == 3
    assert out[0].endswith("[orders: Window #1, attempt 2]: late")
    assert out[2] == "ValueError: 7x"


def test_what_was_printed_is_asked_for(terminal: Terminal) -> None:
    assert terminal("logs", "--stdout", "tm-0").out == "printed\n"


def test_a_taskmanager_that_is_not_there_is_an_error(terminal: Terminal) -> None:
    found = terminal("logs", "tm-9")
    assert found.code == 1
    assert "there is no TaskManager tm-9" in found.err


def test_only_the_end_comes_of_a_long_log(terminal: Terminal, gateway: FakeGateway) -> None:
    gateway.log_files["tm-0"]["taskmanager.log"] = b"0123456789abcde\n" * 10_000
    assert len(terminal("logs", "-n", "1", "tm-0").out) == 1024
