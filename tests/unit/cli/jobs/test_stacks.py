"""`penstock stacks`, `penstock flamegraph` and `penstock peek`."""

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


def test_peek_shows_records_with_their_subtask_event_time_and_key(terminal: Terminal) -> None:
    older, newer = terminal("peek", JOB_ID[:6], "Map -> Window", "-n", "5").lines
    assert "  #1  key 'a'  {'a': 1}" in older
    assert "  #0  event time " in newer
    assert newer.endswith("  {'a': 2}")


def test_peek_without_an_edge_lists_the_edges(terminal: Terminal) -> None:
    assert terminal("peek", JOB_ID).lines == [
        "readings → Map  (in one vertex)",
        "Map → Window",
        "Map [invalid] → Sink: bad",
        "Window → Sink: files  (in one vertex)",
    ]


def test_peek_lists_the_edges_if_the_name_is_wrong(terminal: Terminal) -> None:
    found = terminal("peek", JOB_ID, "Sort → Window")
    assert found.code == 1
    assert "the job has no edge 'Sort → Window'" in found.err
    assert "remedy: its edges are: readings → Map; Map → Window;" in found.err
