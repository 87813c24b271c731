"""The job of the conformance tests: numbers -> a count of each key in state -> rows.

A test runs it in its own process. A test that kills the job runs it in a separate process, which ends at a call of the connector:

python -m tests.integration.connectors.program MODULE CLASS FOLDER ADDRESS CALL
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tests.integration.connectors.connector import Connector

KEYS = 7
"""The key of a number is its remainder."""
MARKS = 100
"""A sink with keys contains for each key a second row with this distance. Each odd count writes it, and each even count deletes it."""
TIMES = 3
"""The job is killed at this call, so that an earlier one has had an effect."""


class FailOnRequest:
    """A map function from records to numbers. It raises once for each time that the test requests it."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._request = str(connector.folder / "raise")

    def __call__(self, record: Any) -> int:
        if os.path.exists(self._request):
            os.unlink(self._request)
            raise RuntimeError("requested by the test")
        return self._connector.number_of(record)


class CountOfKey(KeyedProcessFunction):
    """A function that emits each number with the count of its key. A lost or repeated record changes the counts."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._poison = connector.folder / "poison"

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if self._poison.exists() and value == int(self._poison.read_text()):
            if not self._connector.is_healed:
                yield self._connector.record_of("poison", "")
            return
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        key = value % KEYS
        text = f"{key}:{count}"
        if not self._connector.is_keyed:
            yield self._connector.record_of(value, text)
            return
        yield self._connector.record_of(MARKS + key, text) if count % 2 else self._connector.deletion_of(MARKS + key)
        yield self._connector.record_of(key, text)


def build(connector: Connector, parallelism: int) -> StreamExecutionEnvironment:
    """Return the environment with the program."""
    env = environment(
        connector.folder,
        **{
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "50 ms",
        },
    )
    env.set_parallelism(parallelism)
    env.set_max_parallelism(4)
    stream = env.from_source(connector.source(), WatermarkStrategy.no_watermarks(), "in").uid("in")
    numbers = stream.map(FailOnRequest(connector)).uid("numbers")
    counted = numbers.key_by(lambda number: number % KEYS).process(CountOfKey(connector)).uid("count")
    counted.sink_to(connector.sink()).uid("out")
    return env


def options(connector: Connector, restore: str = "") -> SubmitOptions:
    """Return the options of a start. The job continues from its newest checkpoint if `restore` is empty."""
    return SubmitOptions(job_id=uuid.uuid5(uuid.NAMESPACE_URL, connector.id).hex, restore_path=restore)


def kill_at(connector: Connector, name: str) -> None:
    """Let this process end with SIGKILL at the third call with this name."""
    call = connector.calls[name]
    method, numbers = getattr(call.owner, call.method), itertools.count(1)

    def counted(*arguments: Any, **named: Any) -> Any:
        number = next(numbers)  # several threads may be in the method at the same time
        result = None if call.is_before and number == TIMES else method(*arguments, **named)
        if number == TIMES:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(call.owner, call.method, counted)


def main(module: str, kind: str, folder: str, address: str, call: str) -> None:
    logging.basicConfig(level=logging.INFO)
    connector: Connector = getattr(importlib.import_module(module), kind)(Path(folder), address)
    kill_at(connector, call)
    env = build(connector, 2)
    (connector.folder / "started").touch()
    with executing_on(Session(InProcess(), options(connector))):
        env.execute("conformance")


if __name__ == "__main__":
    main(*sys.argv[1:])
