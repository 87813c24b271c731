"""The messages of tasks in the pipelined runner.

It waits for its own attempt and epoch, and keeps all other messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from penstock.common.errors import EpochFailed
from penstock.jobmanager.runners.pipelined_runner import PipelinedRunner
from penstock.jobmanager.runners.runner import Attempt, unwatched
from penstock.taskmanager.control.channel import Hello
from penstock.taskmanager.protocol import LevelAck, TaskFailure

ATTEMPT = Attempt("job", 4, b"", slots=1, levels=1)
FAILURE = TaskFailure(kind="RuntimeError", message="no database", traceback="RuntimeError: no database\n")


@pytest.fixture
def runner() -> Iterator[PipelinedRunner]:
    cluster: Any = SimpleNamespace(config=SimpleNamespace(host="127.0.0.1"), sql=None)
    runner = PipelinedRunner(cluster)
    runner._job = threading.Thread(target=str)
    runner._job.start()
    runner._epoch = 2
    yield runner
    runner._server.close()


def acks_of(runner: PipelinedRunner, *items: LevelAck | Hello) -> list[LevelAck]:
    for item in items:
        runner._frames.put(item)
    return runner._wait_for_acks(ATTEMPT, unwatched)


def test_a_failure_of_this_attempt_ends_the_wait(runner: PipelinedRunner) -> None:
    (ack,) = acks_of(runner, LevelAck(slot=0, level=0, attempt=4, epoch=-1, failure=FAILURE))
    assert cast("TaskFailure", ack.failure).message == "no database"


def test_no_message_of_a_task_is_dropped_silently(runner: PipelinedRunner, caplog: pytest.LogCaptureFixture) -> None:
    answer = LevelAck(slot=0, level=0, attempt=4, epoch=2)
    with caplog.at_level(logging.INFO):
        acks = acks_of(
            runner,
            LevelAck(slot=0, level=0, attempt=3, epoch=2),
            LevelAck(slot=0, level=0, attempt=-1, epoch=-1, failure=FAILURE),
            LevelAck(slot=0, level=0, attempt=4, epoch=1),
            Hello(3, 0, 0),
            answer,
        )
    assert acks == [answer]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 4
    assert (
        "ignored an acknowledgement of slot 0, level 0 of attempt 3 for epoch 2: the running attempt is 4"
        in messages[0]
    )
    assert "RuntimeError: no database" in messages[1]
    assert caplog.records[1].levelno == logging.WARNING
    assert "for epoch 1: the expected epoch is 2" in messages[2]
    assert "the connection of slot 0, level 0 of attempt 3 has ended" in messages[3]


def test_a_repeated_failure_is_not_a_warning(runner: PipelinedRunner, caplog: pytest.LogCaptureFixture) -> None:
    """The task reports its failure again while it closes. The console of the job already shows the failure."""
    again = msgspec.structs.replace(FAILURE, message="another record")
    other = msgspec.structs.replace(FAILURE, kind="OSError")
    acks_of(runner, LevelAck(slot=0, level=0, attempt=4, epoch=-1, failure=FAILURE))
    with caplog.at_level(logging.INFO):
        for failure in (again, other):
            runner._log_dropped(LevelAck(slot=0, level=0, attempt=4, epoch=-1, failure=failure), "it has failed before")
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]


def test_a_lost_task_of_this_attempt_fails_the_epoch(runner: PipelinedRunner) -> None:
    with pytest.raises(EpochFailed, match="slot 0, level 0 has ended"):
        acks_of(runner, Hello(4, 0, 0))


def test_an_ended_control_channel_fails_the_epoch_by_name(runner: PipelinedRunner) -> None:
    runner._server.failure = MemoryError("no more")
    with pytest.raises(EpochFailed, match="control channel has ended: no more"):
        acks_of(runner)
