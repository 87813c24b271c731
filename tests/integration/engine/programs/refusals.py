"""Helpers that run invalid programs and return the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import PenstockError
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess


class Refused:
    """The error of a program that was refused."""

    def __init__(self, error: PenstockError, *, was_accepted: bool = False) -> None:
        self.was_accepted = was_accepted
        """Whether the program was reported as running before."""
        self.code = error.code
        self.message = error.message
        self.operator = error.operator
        self.location = error.location
        self.remedy = error.remedy
        self.text = str(error)

    def points_to(self, test_file: str) -> bool:
        """Return whether the location is a line of this file."""
        file, _, line = self.location.rpartition(":")
        return file == test_file and line.isdigit()


def refused(
    env: StreamExecutionEnvironment, submit: SubmitOptions | None = None, *, slots: int = 8, slot_timeout_s: float = 300
) -> Refused:
    """Run a program that must be refused. It uses the default restart strategy, because a retry is not allowed either."""
    session = Session(InProcess(slots), submit)
    session.on_started = lambda master: setattr(master.options, "slot_timeout_s", slot_timeout_s)
    accepted: list[object] = []
    session.on_accepted = accepted.append
    with executing_on(session), pytest.raises(PenstockError) as caught:
        env.execute("bad")
    return Refused(caught.value, was_accepted=bool(accepted))


def nothing_touched(folder: Path) -> bool:
    """Return whether no file exists: no checkpoint, no claim to lead and no record."""
    written = [path for where in ("checkpoints", "output") for path in (folder / where).rglob("*") if path.is_file()]
    return not written


class Remembers(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        yield value
