"""A stop with --drain whose commit fails once: the job ends FINISHED, and the only answer names the savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.job_status import JobStatus
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until

FAILURES = [0]


class FailsOnce(TwoPhaseCommitSinkFunction):
    """A sink whose commits fail as often as `FAILURES` says."""

    def __init__(self, committed: str) -> None:
        self.committed = committed

    def begin_transaction(self) -> Any:
        return []

    def invoke(self, transaction: Any, value: Any, context: Any) -> None:
        transaction.append(value)

    def pre_commit(self, transaction: Any) -> None: ...

    def commit(self, transaction: Any) -> None:
        if FAILURES[0] > 0:
            FAILURES[0] -= 1
            raise ConnectionError("the target is away")
        with Path(self.committed).open("a") as out:
            out.writelines(f"{value}\n" for value in transaction)

    def abort(self, transaction: Any) -> None: ...


@pytest.mark.parametrize("failures", [1, 3])
def test_a_drain_whose_commit_fails_ends_with_its_savepoint(tmp_path: Path, failures: int) -> None:
    FAILURES[0] = 0
    env = environment(
        tmp_path,
        **{
            "execution.checkpointing.interval": "1 h",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    source = DataGeneratorSource(lambda index: index, 10**9, 500)
    committed = tmp_path / "committed"
    env.from_source(source, None, "numbers").sink_to(TwoPhaseCommitSink(FailsOnce(str(committed))))
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING and master.metrics.records_total > 20, master)
    FAILURES[0] = failures
    stop = master.request(Operation("stop", {"drain": True}))
    assert stop.wait(60)
    assert stop.failure is None
    assert stop.location is not None
    assert (Path(stop.location.removeprefix("file://")) / "_metadata").exists()
    assert master.wait(60) is JobStatus.FINISHED
    values = [int(line) for line in committed.read_text().splitlines()]
    assert values == list(range(len(values)))
    assert len(values) > 20
