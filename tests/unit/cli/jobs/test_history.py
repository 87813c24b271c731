"""`penstock history` lists and shows jobs that have ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.unit.jobmanager.history.test_archive import ended

if TYPE_CHECKING:
    from tests.unit.cli.terminal import Terminal


def test_jobs_are_listed_and_shown(terminal: Terminal, tmp_path: Path) -> None:
    _, master = ended(tmp_path, fail=True)
    folder = str(tmp_path / "history")
    [line] = terminal("history", "list", folder).lines
    assert f" : {master.job_id} : numbers (FAILED, " in line
    out = terminal("history", "show", folder, "numbers").out
    assert f"numbers ({master.job_id}): FAILED after " in out
    assert "Most" in out
    assert "UserFunctionError in " in out
    assert "70 is no number" in out


def test_an_unknown_job_is_an_error(terminal: Terminal, tmp_path: Path) -> None:
    found = terminal("history", "show", str(tmp_path), "orders")
    assert found.code == 1
    assert f"{tmp_path} has no archive of job 'orders'" in found.err


def test_rest_is_served_until_the_command_is_interrupted(tmp_path: Path) -> None:
    _, master = ended(tmp_path)
    command = [sys.executable, "-m", "penstock.cli", "history", "serve", str(tmp_path / "history"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            assert httpx.get(f"{url}/jobs").json() == {"jobs": [{"id": master.job_id, "status": "FINISHED"}]}
            assert "Penstock" in httpx.get(url).text
        finally:
            server.terminate()
            assert server.wait(30) == 0
