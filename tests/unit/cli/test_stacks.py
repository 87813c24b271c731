"""`penstock stacks` and `penstock flamegraph`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.rest.fake_gateway import JOB_ID

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal


def test_stacks_are_shown_with_their_taskmanager(terminal: Terminal) -> None:
    out = terminal("stacks").out
    assert 'tm-0: "MainThread" (vertex 0 #0)\n\tat app.parse:7\n\tat app.main:1\n' in out
    assert "tm-1: " in out
    assert "test_stacks_are_shown_with" in terminal("stacks", "jobmanager").out


def test_a_flame_graph_consists_of_folded_stacks(terminal: Terminal, tmp_path: Path) -> None:
    arguments = ("flamegraph", JOB_ID[:6], "--vertex", "readings", "-s", "0.1", "--subtask", "1")
    assert terminal(*arguments).out == "MainThread;app.main:1;app.parse:7 8\n"
    found = terminal(*arguments, "--output", str(tmp_path / "out.folded"))
    assert "1 stacks were written to" in found.err
    assert (tmp_path / "out.folded").read_text() == "MainThread;app.main:1;app.parse:7 8\n"


def test_an_ambiguous_vertex_is_refused(terminal: Terminal) -> None:
    found = terminal("flamegraph", JOB_ID)
    assert found.code == 1
    assert "the command needs one vertex" in found.err
    assert "--vertex: Source: readings" in found.err
    assert "has no vertex 'Sort'" in terminal("flamegraph", JOB_ID, "--vertex", "Sort").err
