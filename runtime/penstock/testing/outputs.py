"""The output of a job under test: a sink, and lists that a crash cuts back to the last snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.jobmanager.job.pending_results import PendingResults, Results
from penstock.testing.journal import decode, encode

Record = tuple[Any, int | None]
"""A value and its event time (ms)."""


class HarnessSink(Sink):
    """A sink that passes every record with its timestamp to the harness."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        operator = context.operator
        assert operator is not None
        assert operator.results is not None
        return _Writer(self.name, operator.results)


class _Writer(SinkWriter):
    def __init__(self, name: str, results: Callable[[str, list[Any]], None]) -> None:
        self._name = name
        self._results = results

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        stamps: list[int] | list[None] = [None] * len(values) if timestamps is None else timestamps
        self._results(self._name, [encode(record) for record in zip(values, stamps, strict=True)])


class Outputs(PendingResults):
    """The records of each output. They are visible immediately. A crash removes records that no snapshot covers.

    >>> outputs = Outputs({"out": [("a", 1)]})
    >>> outputs.add("out", [encode(("b", 2))]); outputs.barrier(1); outputs.add("out", [encode(("c", 3))])
    >>> outputs.completed(1), outputs.of("out")
    ([], [('a', 1), ('b', 2), ('c', 3)])
    >>> outputs.drop(); outputs.of("out")
    [('a', 1), ('b', 2)]
    """

    def __init__(self, initial: Mapping[str, list[Record]] | None = None) -> None:
        super().__init__(checkpointing=True)
        self._records: dict[str, list[Record]] = defaultdict(list)
        for name, records in (initial or {}).items():
            self._records[name] = list(records)
        self._marks: dict[int, dict[str, int]] = {}
        self._covered = self._lengths()

    def _lengths(self) -> dict[str, int]:
        return {name: len(records) for name, records in self._records.items()}

    def of(self, name: str) -> list[Record]:
        return list(self._records.get(name, ()))

    def all(self) -> dict[str, list[Record]]:
        """Return a copy of all records."""
        return {name: list(records) for name, records in self._records.items()}

    def add(self, uid: str, values: list[bytes]) -> None:
        self._records[uid].extend(map(decode, values))

    def barrier(self, checkpoint_id: int) -> None:
        self._marks[checkpoint_id] = self._lengths()

    def end_of_epoch(self) -> Results:
        return []

    def completed(self, checkpoint_id: int) -> Results:
        self._covered = self._marks[checkpoint_id]
        self._marks = {later: mark for later, mark in self._marks.items() if later > checkpoint_id}
        return []

    def drop(self) -> None:
        for name, records in self._records.items():
            del records[self._covered.get(name, 0) :]
        self._marks = {}
