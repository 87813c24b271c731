"""The end of a bounded job while something of before is still under way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.savepoint import exports as savepoint_exports
from penstock.common.job_status import JobStatus
from penstock.connectors.datagen import DataGeneratorSource
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, started, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_job_ends_when_its_savepoint_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies take longer than the job: its last checkpoint is complete before they are."""
    write = savepoint_exports.write_savepoint

    def slowly(*arguments: Any, **options: Any) -> str:
        time.sleep(2.0)
        return write(*arguments, **options)

    monkeypatch.setattr(savepoint_exports, "write_savepoint", slowly)
    env = environment(tmp_path)
    env.from_source(DataGeneratorSource(lambda i: i, 500, 500), None, "numbers").map(str).print()
    master = started(env)
    until(lambda: master.history.status is JobStatus.RUNNING, master)
    operation = master.request(Operation("savepoint"))
    assert master.wait(60) is JobStatus.FINISHED
    assert operation.failure is None
    assert operation.location is not None
