"""Operators one at a time, in this process: CPU time per record compared with the same loop in plain Python, in turn."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.operator_cases import CASES, Case, Record, Step
from benchmarks.operators_baseline import baseline, is_dearer
from penstock.graph.job_graph import ExchangeSpec
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.batch import MAX_TIMESTAMP, Batch, RowBatch
from penstock.taskmanager.exchange.rows import decode_buffer
from penstock.taskmanager.exchange.writers import create_writer
from penstock.taskmanager.operators.factory import create_operator
from penstock.testing.operator_run import OperatorRun

RECORDS, BATCH, KEYS = 500_000, 5_000, 1000
TIMES_PLAIN, MORE_US = 2.0, 0.5


def operators(records: int | None, repetitions: int) -> dict[str, Any]:
    """Measure the µs of CPU per record. The goal is at most twice the plain loop's plus half a microsecond.

    An operator that seems slower than its baseline is measured again before the report. This never fails the run.
    """
    count = records or RECORDS
    gc.collect()
    gc.freeze()  # otherwise the collections before each run would traverse all imported objects
    try:
        return _compared_with_baseline(count, repetitions)
    finally:
        gc.unfreeze()


def _compared_with_baseline(count: int, repetitions: int) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for name in (*CASES, "key_by"):
        found[name] = _measured(name, count, repetitions)
    dearer: dict[str, str] = {}
    for name, before in baseline(count).items():
        if name in found and is_dearer(found[name]["ratio"], before):
            found[name] = min(
                found[name], _measured(name, count, 2 * repetitions), key=lambda figures: figures["ratio"]
            )
            if is_dearer(ratio := found[name]["ratio"], before):
                dearer[name] = f"{ratio:.2f} times the plain loop, {before:.2f} in the baseline"
                print(f"{name} has become slower: {dearer[name]}", file=sys.stderr)
    problems = {name: figures["wrong"] for name, figures in found.items() if "wrong" in figures}
    return {"records": count, "operators": found, "dearer": dearer, "problems": problems}


def _measured(name: str, records: int, repetitions: int) -> dict[str, Any]:
    if name == "key_by":
        return _compared(name, _steps(CASES["map"], records), _exchange, _exchange_plain, repetitions)
    case = CASES[name]
    steps = _steps(case, int(records * case.share))
    return _compared(name, steps, lambda steps: _run(case, steps), case.loop, repetitions)


def _steps(case: Case, records: int) -> list[Step]:
    rng = np.random.Generator(np.random.PCG64(42))
    keys = [f"k{key:04d}" for key in range(KEYS)]
    chosen, numbers = rng.integers(0, KEYS, records).tolist(), rng.integers(0, 100, records).tolist()
    rows: list[Record] = [(keys[key], n, number) for n, (key, number) in enumerate(zip(chosen, numbers, strict=True))]
    batches = [rows[begin : begin + BATCH] for begin in range(0, records, BATCH)]
    steps = [Step(batch, batch[-1][1] - 1, n % case.inputs) for n, batch in enumerate(batches)]
    return [*steps, *(Step([], MAX_TIMESTAMP, n) for n in range(case.inputs))]


def _compared(
    name: str,
    steps: list[Step],
    engine: Callable[[list[Step]], list[Any]],
    plain: Callable[[list[Step]], list[Any]],
    repetitions: int,
) -> dict[str, Any]:
    records = sum(len(step.records) for step in steps)
    ours, theirs, wrong = [], [], None
    for _ in range(repetitions):
        own_s, own = _timed(engine, steps)
        plain_s, other = _timed(plain, steps)
        ours.append(own_s / records * 1e6)
        theirs.append(plain_s / records * 1e6)
        if Counter(own) != Counter(other):
            wrong = f"{name}: {len(own)} results, {len(other)} of the plain loop, or others"
        del own, other
    cost, loop = min(ours), min(theirs)
    goal = TIMES_PLAIN * loop + MORE_US
    figures = {
        "us": round(cost, 3),
        "plain_us": round(loop, 3),
        "ratio": round(cost / loop, 3),
        "goal_us": round(goal, 3),
        "met": cost <= goal,
        "median_us": round(statistics.median(ours), 3),
    }
    print(
        f"{name:22} {cost:7.3f} µs, plain {loop:7.3f}, goal {goal:7.3f}{'' if cost <= goal else '  missed'}",
        file=sys.stderr,
    )
    return figures if wrong is None else {**figures, "wrong": wrong}


def _timed(work: Callable[[list[Step]], list[Any]], steps: list[Step]) -> tuple[float, list[Any]]:
    gc.collect()
    started = time.process_time()
    results = work(steps)
    return time.process_time() - started, results


class _Gathering:
    """An output that keeps its batches."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def emit(self, batch: Batch) -> None:
        self.batches.append(batch)

    def emit_side(self, tag_id: str, batch: Batch) -> None: ...

    def emit_watermark(self, timestamp: int) -> None: ...

    def emit_idle(self, is_idle: bool) -> None: ...


def _run(case: Case, steps: list[Step]) -> list[Any]:
    run = OperatorRun(create_operator(case.operation()))
    output = _Gathering()
    run.operator.setup(run.context, output)
    run.operator.open()
    operator = run.operator
    for step in steps:
        if step.records:
            operator.process_batch(RowBatch(step.records, [record[1] for record in step.records]), step.input_index)
        if case.inputs == 1 or step.input_index:
            operator.process_watermark(step.watermark)
    operator.finish()
    run.close()
    return [value for batch in output.batches for value in batch.rows().values]


def _exchange(steps: list[Step]) -> list[Any]:
    """Run `key_by`: hash, split, encode for two subtasks and decode, as between two processes."""
    rows: list[bytes] = []
    spec = ExchangeSpec(0, 0, None, Partitioning(Exchange.KEY_GROUP, lambda record: record[0]), 1, 2, 128)
    writer = create_writer(spec, 0, lambda target, row: rows.append(row))
    out: list[Any] = []
    for step in steps:
        if step.records:
            writer.write(RowBatch(step.records, [record[1] for record in step.records]))
        writer.watermark(step.watermark)
        writer.flush()
        for batch in [decode_buffer(row).batch() for row in rows]:
            if batch is not None:
                out.extend(batch.rows().values)
        rows.clear()
    return out


def _exchange_plain(steps: list[Step]) -> list[Any]:
    """Split by the key's hash, then pickle and unpickle."""
    import pickle

    out: list[Any] = []
    for step in steps:
        parts: tuple[list[Any], list[Any]] = ([], [])
        for record in step.records:
            parts[hash(record[0]) & 1].append(record)
        for part in parts:
            out.extend(pickle.loads(pickle.dumps(part)))
    return out
