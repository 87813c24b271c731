"""Secrets in a worker's environment do not leave the worker in error texts. Other processes do not know these secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.common.errors import StateTypeError
from penstock.common.restart_strategy import RestartStrategies
from penstock.taskmanager.failure import failure_of
from penstock.taskmanager.look_up import LookUpAnswer, decode_look_up_answer, encode_look_up
from penstock.taskmanager.protocol import LevelAck, SnapshotAck, Whereabouts, decode_ack, encode_ack
from tests.in_process import environment, started

SECRET = "hunter22-of-the-worker"


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DATABASE_URL", f"postgres://me:{SECRET}@db/orders")
    return SECRET


def sent(**parts: object) -> LevelAck:
    return decode_ack(encode_ack(LevelAck(0, 0, 0, 0, **parts)))  # type: ignore[arg-type]


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("kind", [ValueError, StateTypeError])
def test_a_failure_of_a_function_hides_the_secret(secret: str, kind: type[Exception]) -> None:
    try:
        raise kind(f"cannot write with {secret}") from ConnectionError(f"no access for {secret}")
    except kind as error:
        failure = sent(failure=failure_of(error)).failure
    assert failure is not None
    assert "cannot write with ******" in failure.message
    assert "no access for ******" in failure.traceback
    assert secret not in repr(failure)


def test_a_declined_snapshot_hides_the_secret(secret: str) -> None:
    (ack,) = sent(snapshots=[SnapshotAck(1, "u", 0, error=f"OSError: {secret}")]).snapshots
    assert ack.error == "OSError: ******"


def test_the_place_where_a_task_hangs_hides_the_secret(secret: str) -> None:
    where = sent(where=Whereabouts("map", 61.0, stack=f"connect({secret!r})")).where
    assert where is not None
    assert where.stack == "connect('******')"


def test_a_value_that_cannot_be_sent_hides_the_secret(secret: str) -> None:
    class Opaque:
        def __repr__(self) -> str:
            return f"Opaque({secret})"

    with pytest.raises(TypeError, match=r"Opaque\(\*\*\*\*\*\*\)") as failed:
        encode_ack(LevelAck(0, 0, 0, 0, sources={"u": Opaque()}))  # type: ignore[dict-item]
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__


def test_a_refused_look_up_hides_the_secret(secret: str) -> None:
    answer = decode_look_up_answer(encode_look_up(LookUpAnswer(1, 0, refusal=f"ValueError: {secret}")))
    assert answer.refusal == "ValueError: ******"


def test_texts_without_secrets_are_unchanged(secret: str) -> None:
    """The JobManager hides texts that only look like a secret. Developers see their own texts."""
    failure = sent(failure=failure_of(raised(ValueError("token=unknown-here")))).failure
    assert failure is not None
    assert "token=unknown-here" in failure.message


def test_a_secret_that_only_the_worker_has_is_in_no_record_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(value: int) -> int:
        monkeypatch.setenv("WORKER_DB_PASSWORD", SECRET)
        raise ConnectionError(f"login with {os.environ['WORKER_DB_PASSWORD']} failed on record {value}")

    env = environment(tmp_path)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.from_collection([1]).map(connect).print()
    master = started(env)
    master.wait(60)
    assert "login with ****** failed on record 1" in master.history.failures[0].message
    records = (*master.history.failures, *master.history.events, *master.history.starts, master.error)
    assert SECRET not in f"{records!r} {master.error}"
