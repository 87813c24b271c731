"""One operator on the same records as rows and as columns, for the differential test of columns.

In rows, one subtask gets each part of the history as one batch. In columns, the parts are split into batches at random
and travel through the operator's exchange. The operator is restored at another parallelism between parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.graph.job_graph import ExchangeSpec
from penstock.graph.operations import Operation
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import MAX_TIMESTAMP, Batch, ColumnBatch, RowBatch
from penstock.records.columns import rows_as_dicts
from penstock.records.fields import field_of
from penstock.taskmanager.exchange.rows import decode_buffer
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.operators.factory import create_operator
from penstock.testing.operator_run import OperatorRun

MAX_PARALLELISM = 128
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("number", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("plain", pa.float64()),
        ("at", pa.timestamp("us")),
        ("seconds", pa.timestamp("s")),
        ("day", pa.date32()),
        ("k", pa.float64()),
    ]
)

NAN, INFINITE = float("nan"), float("inf")
longs = st.sampled_from([0, 1, -1, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 10**17]) | st.integers(-100, 100)
floats = st.sampled_from([NAN, INFINITE, -INFINITE, 0.0, -0.0, 1e17, -1e17, 1e308, 0.1, 5e-324]) | st.floats(-10, 10)
singles = st.sampled_from([NAN, 0.0, -0.0, INFINITE]) | st.floats(-10, 10, width=32)
times = st.integers(-50, 60)


@st.composite
def record(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "id": draw(st.sampled_from(["a", "b", "c", "a longer key"])),
        "n": draw(st.none() | longs),
        "x": draw(st.none() | floats),
        "f": draw(st.none() | singles),
        "plain": draw(floats),
        "k": draw(st.sampled_from([0.0, -0.0, 0.5])),
        "time": draw(times),
        "us": draw(st.integers(0, 999)),
    }


@dataclass
class Part:
    """The records before one watermark.

    Attributes:
            cuts: ends of the batches of columns. Ends beyond the records have no effect.
            parallelism: parallelism of the run by columns from here on, after a restore. 0 continues without a restore.
    """

    records: list[dict[str, Any]]
    watermark: int
    cuts: list[int] = field(default_factory=list)
    parallelism: int = 0


parts = st.builds(
    Part,
    st.lists(record(), max_size=12),
    st.integers(-60, 60),
    st.lists(st.integers(1, 11), max_size=4),
    st.integers(0, 3),
)
histories = st.lists(parts, min_size=1, max_size=4)


class Journey:
    """The subtasks of one operator, and all their output."""

    def __init__(self, operation: Operation, backend: str, parallelism: int) -> None:
        self.operation = operation
        self.outputs: list[tuple[Any, Any]] = []
        self.runs = [
            OperatorRun(create_operator(operation), backend=backend, subtask=subtask, parallelism=parallelism)
            for subtask in range(parallelism)
        ]

    def push(self, batch: Batch) -> None:
        for target, arrived in self._sent(batch):
            for side in range(max(1, len(self.operation.key_selectors))):
                self.runs[target].push_batch(arrived, side)
        self._gather()

    def _sent(self, batch: Batch) -> list[tuple[int, Batch]]:
        rows: list[tuple[int, bytes]] = []
        selector = self.operation.key_selectors[0] if self.operation.is_keyed else None
        by_key = Partitioning(Exchange.KEY_GROUP, selector, key_field=field_of(selector))
        partitioning = by_key if selector is not None else Partitioning(Exchange.REBALANCE)
        spec = ExchangeSpec(0, 0, None, partitioning, 1, len(self.runs), MAX_PARALLELISM, takes_columns=True)
        writer = create_writer(spec, 0, lambda target, row: rows.append((target, row)))
        writer.write(batch)
        writer.flush()
        decoded = [(target, decode_buffer(row).batch()) for target, row in rows]
        return [(target, arrived) for target, arrived in decoded if arrived is not None]

    def watermark(self, timestamp: int) -> None:
        for run in self.runs:
            run.at_time(max(timestamp, run.clock.now))
            run.watermark(timestamp)
        self._gather()

    def restore(self, parallelism: int) -> None:
        self.runs = OperatorRun.rescale(self.runs, parallelism)

    def _gather(self) -> None:
        for run in self.runs:
            self.outputs += run.output.records
            self.outputs += [(("late", value), at) for value, at in run.output.sides.get("late", [])]
            run.output.records.clear()
            run.output.sides.clear()

    def finished(self) -> list[str]:
        """Return the outputs in any order. Their texts distinguish 1, 1.0 and True, and -0.0 and 0.0, and are equal for
        NaN."""
        self.watermark(MAX_TIMESTAMP)
        for run in self.runs:
            run.close()
        return sorted(map(repr, self.outputs))


def batch_of(records: list[dict[str, Any]], first: int) -> ColumnBatch:
    """Return columns of the records. `first` is the number of the first record."""
    rows = [
        {
            **record,
            "number": number,
            "seconds": record["time"] // 10,
            "day": record["time"] // 25,
            "at": np.datetime64(record["time"] * 1000 + record["us"], "us").item(),
        }
        for number, record in enumerate(records, first)
    ]
    stamps = np.array([record["time"] for record in records], np.int64)
    return ColumnBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), stamps, rows_as_dicts)


def by_rows(operation: Operation, history: list[Part]) -> list[str]:
    journey, number = Journey(operation, "hashmap", 1), 0
    for part in history:
        if part.records:
            rows = batch_of(part.records, number).rows()
            journey.push(RowBatch(rows.values, rows.timestamps))
        number += len(part.records)
        journey.watermark(part.watermark)
    return journey.finished()


def by_columns(operation: Operation, history: list[Part], backend: str) -> list[str]:
    journey, number = Journey(operation, backend, 1), 0
    for part in history:
        if part.parallelism:
            journey.restore(part.parallelism)
        ends = sorted({cut for cut in part.cuts if cut < len(part.records)} | {len(part.records)})
        for begin, end in zip([0, *ends], ends, strict=False):
            if begin < end:
                journey.push(batch_of(part.records[begin:end], number + begin))
        number += len(part.records)
        journey.watermark(part.watermark)
    return journey.finished()
