"""Connectors of the engine without a system: sources that generate their records, sinks that call a function. No bare client exists."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from benchmarks.connectors import job
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost
from benchmarks.connectors.records import rows
from penstock.connectors.core.function import FunctionSink, FunctionSource
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.connectors.core.write_ahead import FileCheckpointCommitter, GenericWriteAheadSink
from penstock.connectors.simple.collection import CollectionSource
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.connectors.simple.print import PrintSink


@contextmanager
def plain(folder: Path) -> Iterator[list[Case]]:
    yield [
        Case("plain.collection", lambda count: job.read(CollectionSource(rows(count)), count), share=0.5),
        Case("plain.numbers", lambda count: job.read(NumberSequenceSource(0, count - 1), count, form="rows")),
        Case("plain.generator", lambda count: job.read(DataGeneratorSource(_reading, count), count)),
        Case("plain.function-source", lambda count: job.read(FunctionSource(_Emits(count), bounded=True), count)),
        Case("plain.collect", job.collect, share=0.3),
        Case("plain.function-sink", lambda count: job.write(FunctionSink(_ignore), count)),
        Case("plain.print", _printed, share=0.5),
        Case("plain.two-phase", lambda count: job.write(TwoPhaseCommitSink(_Lines(folder)), count), share=0.5),
        Case("plain.write-ahead", lambda count: job.write(_Sent(folder), count), share=0.5),
    ]


def _reading(index: int) -> dict[str, Any]:
    return {"sensor_id": f"s{index % 10_000:07d}", "ts": 1_700_000_000_000 + index, "temp": 71.25}


class _Emits:
    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, ctx: Any) -> None:
        for row in rows(self.count):
            ctx.collect(row)

    def cancel(self) -> None: ...


def _ignore(value: Any) -> None: ...


def _printed(count: int) -> Cost:
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        return job.write(PrintSink(), count)


class _Lines(TwoPhaseCommitSinkFunction):
    """A sink whose transactions are files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def begin_transaction(self) -> str:
        self._number += 1
        return str(self._folder / f"transaction-{os.getpid()}-{self._number}")

    def invoke(self, transaction: Any, value: Any, context: Any) -> None: ...

    def pre_commit(self, transaction: Any) -> None: ...

    def commit(self, transaction: Any) -> None: ...

    def abort(self, transaction: Any) -> None: ...


class _Sent(GenericWriteAheadSink):
    def __init__(self, folder: Path) -> None:
        super().__init__(FileCheckpointCommitter(str(folder / "notes")))

    def send_values(self, values: Sequence[Any], checkpoint_id: int, timestamp: int) -> bool:
        return True
