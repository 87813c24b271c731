"""The planner's process answers each request, also after an interrupt."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from penstock.sql.planner.process import PlannerProcess

ECHO = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"kind": "described", "names": [json.loads(line)["sql"]]}), flush=True)
"""


class Interrupted:
    """An output of a process whose reader is interrupted."""

    def __init__(self, output: Any) -> None:
        self._output = output

    def readline(self) -> bytes:
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


def test_a_request_after_an_interrupted_one_gets_its_own_answer(monkeypatch):
    def start(self: PlannerProcess) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(PlannerProcess, "_start", start)
    planner = PlannerProcess({})
    assert planner.schema("first").names == ("first",)
    process: Any = planner._process
    output, process.stdout = process.stdout, Interrupted(process.stdout)
    with pytest.raises(KeyboardInterrupt):
        planner.schema("second")
    process.stdout = output
    assert planner.schema("third").names == ("third",)
    process = planner._process
    for stream in (process.stdin, process.stdout):
        stream.close()
    process.wait()
