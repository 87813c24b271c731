"""Running programs that must not run, and what they are refused with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import PenstockError
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session import Session, SubmitOptions
from tests.in_process import InProcess


class Refused:
    """What a program was refused with."""

    def __init__(self, error: PenstockError, *, was_accepted: bool = False) -> None:
        self.was_accepted = was_accepted
        """Somebody was told that the job runs."""
        self.code = error.code
        self.message = error.message
        self.operator = error.operator
        self.location = error.location
        self.remedy = error.remedy
        self.told = str(error)

    def points_to(self, test_file: str) -> bool:
        """Whether the location is a line of that file."""
        file, _, line = self.location.rpartition(":")
        return file == test_file and line.isdigit()


def refused(
    env: StreamExecutionEnvironment, submit: SubmitOptions | None = None, *, slots: int = 8, slot_timeout_s: float = 300
) -> Refused:
    """Run a program that must not run. The restart strategy is the default one: it must not be tried again either."""
    session = Session(InProcess(slots), submit)
    session.on_started = lambda master: setattr(master.options, "slot_timeout_s", slot_timeout_s)
    accepted: list[object] = []
    session.on_accepted = accepted.append
    with executing_on(session), pytest.raises(PenstockError) as caught:
        env.execute("bad")
    return Refused(caught.value, was_accepted=bool(accepted))


def nothing_touched(folder: Path) -> bool:
    """No file: neither a checkpoint nor a claim to lead nor a record."""
    written = [path for where in ("checkpoints", "output") for path in (folder / where).rglob("*") if path.is_file()]
    return not written


class Remembers(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        yield value
