"""A savepoint is a folder that can be moved, for example to another bucket, after which the original location is gone."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest

from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.in_process import PATIENCE_S, environment, run, started, until
from tests.integration.engine.selfcheck.driver import settings_for
from tests.integration.engine.selfcheck.job import Plan, build
from tests.integration.engine.selfcheck.output import verify

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.jobmanager.job.job_master import JobMaster
    from tools.servers.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.timeout(180)]

PLAN = Plan(per_key=600, rate=1_500)


def checkpoints_of(master: JobMaster) -> int:
    latest = master.checkpoints.coordinator.latest
    return latest.checkpoint_id if latest is not None else 0


@pytest.mark.parametrize("backend", [pytest.param("hashmap", marks=pytest.mark.slow), "rocksdb"])
def test_a_job_continues_from_another_bucket(tmp_path: Path, s3: S3Server, backend: str) -> None:
    made, moved, out = (f"{use}-{uuid.uuid4().hex[:12]}" for use in ("made", "moved", "out"))
    for bucket in (made, moved, out):
        s3.create_bucket(bucket)

    def program(bucket: str, parallelism: int) -> StreamExecutionEnvironment:
        places = {
            "execution.checkpointing.dir": f"s3://{bucket}/checkpoints",
            "execution.checkpointing.savepoint-dir": f"s3://{bucket}/savepoints",
        }
        env = environment(tmp_path, **settings_for(s3), **places, **{"state.backend.type": backend})
        build(env.set_parallelism(parallelism), PLAN, f"s3://{out}/output")
        return env

    master = started(program(made, 2))
    until(lambda: checkpoints_of(master) >= 3, master)
    operation = master.request(Operation("stop"))
    assert master.wait(PATIENCE_S) is JobStatus.FINISHED
    assert operation.location is not None, operation.failure

    store = fsspec.filesystem("s3", **s3.storage_options())
    name = operation.location.rstrip("/").rpartition("/")[2]
    target = f"s3://{moved}/archive/2026/{name}"
    for file in store.find(operation.location):
        store.copy(file, f"{target}/{file.partition(f'{name}/')[2]}")
    store.rm(made, recursive=True)

    again = run(program(moved, 3), SubmitOptions(restore_path=target))
    assert again.history.status is JobStatus.FINISHED
    verify(PLAN, f"s3://{out}/output", s3.storage_options())
