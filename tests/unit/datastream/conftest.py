from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.graph.program import Program


class RecordingExecutor:
    """An executor that runs nothing and stores its programs."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.limits: list[int | None] = []
        self.collected: list[Any] = []
        self.closed = False

    def execute(self, program: Program) -> Any:
        self.programs.append(program)
        return "result"

    def execute_async(self, program: Program) -> Any:
        self.programs.append(program)
        return "client"

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        self.programs.append(program)
        self.limits.append(limit)
        return self._values()

    def _values(self) -> Iterator[Any]:
        try:
            yield from self.collected
        finally:
            self.closed = True


@pytest.fixture
def executor() -> Iterator[RecordingExecutor]:
    recording = RecordingExecutor()
    with executing_on(recording):
        yield recording


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)
    return StreamExecutionEnvironment.get_execution_environment()
