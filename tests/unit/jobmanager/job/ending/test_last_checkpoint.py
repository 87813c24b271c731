"""The end of a bounded job while earlier work is in progress."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.layout import METADATA
from penstock.checkpoint.savepoint import exports as savepoint_exports
from penstock.checkpoint.savepoint.savepoints import write_savepoint
from penstock.checkpoint.store.retrying_store import RetryingStore
from penstock.common.job_status import JobStatus
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.jobmanager.job.epoch_loop import EpochLoop
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_job_ends_when_its_savepoint_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies take longer than the job. Its last checkpoint is complete before they are."""

    def slowly(*arguments: Any, **options: Any) -> str:
        time.sleep(2.0)
        return write_savepoint(*arguments, **options)

    monkeypatch.setattr(savepoint_exports, "write_savepoint", slowly)
    env = environment(tmp_path)
    env.from_source(DataGeneratorSource(lambda i: i, 500, 500), None, "numbers").map(str).print()
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    operation = master.request(Operation("savepoint"))
    assert master.wait(60) is JobStatus.FINISHED
    assert operation.failure is None
    assert operation.location is not None


def test_the_job_idles_while_the_second_to_last_manifest_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input has ended, so that epochs would be Spark jobs without work."""
    put, stand_still = RetryingStore.put_if_absent, EpochLoop._wait_for_outcome
    is_paused = threading.Event()
    in_time = []

    def put_when_the_job_is_paused(store: RetryingStore, url: str, content: bytes) -> bool:
        if url.endswith(METADATA):
            in_time.append(is_paused.wait(10))
        return put(store, url, content)

    def noted(loop: EpochLoop) -> None:
        is_paused.set()
        stand_still(loop)

    monkeypatch.setattr(RetryingStore, "put_if_absent", put_when_the_job_is_paused)
    monkeypatch.setattr(EpochLoop, "_wait_for_outcome", noted)
    env = environment(tmp_path, **{"execution.checkpointing.interval": "20 ms"})
    env.from_source(DataGeneratorSource(lambda i: i, 500, 5_000), None, "numbers").map(str).print()
    assert started(env).wait(60) is JobStatus.FINISHED
    assert len(in_time) >= 2
    assert all(in_time)
