"""One cluster, one S3 server and one installation of the operator for all end-to-end tests. Each test deploys its jobs.

For a quick second run, set PENSTOCK_E2E_CLUSTER to the name of a running development cluster. Set
PENSTOCK_E2E_IMAGES=as-built to use the images of the last build.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e import images
from tests.e2e.flinkjob import Job
from tests.e2e.stack import BUCKET, Stack
from tools.devcluster import Cluster
from tools.servers.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

collect_ignore = ["job"]
"""The content of the images, which contain these modules under other names."""


def _interrupt(*_: object) -> None:
    """Stop the cluster, too, if a signal ends the run."""
    raise KeyboardInterrupt


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start the cluster. Fail with every reason on a machine that cannot host it."""
    signal.signal(signal.SIGTERM, _interrupt)
    scratch: Path = tmp_path_factory.mktemp("e2e")
    with Cluster(os.environ.get("PENSTOCK_E2E_CLUSTER", "e2e")) as cluster:
        as_built = os.environ.get("PENSTOCK_E2E_IMAGES") == "as-built"
        cluster.load(*(images.ALL if as_built else images.build(scratch / "images")))
        with S3Server(scratch / "s3", host=cluster.host_address) as s3:
            s3.create_bucket(BUCKET)
            stack = Stack(cluster, s3)
            stack.add_secret()
            stack.install()
            yield stack
            print("\n" + "\n".join(stack.report))


@pytest.fixture(scope="module")
def deploy(stack: Stack) -> Iterator[Callable[..., Job]]:
    """Return a function that creates FlinkJobs. It restores the spec of an existing job that is Ready.

    The jobs are deleted after the module's last test.
    """
    made: dict[str, Job] = {}

    def make(name: str, **wishes: object) -> Job:
        job = made.get(name)
        if job is not None and job.condition("Ready").get("status") == "True":
            return job
        if job is None or not job.object:
            job = made[name] = Job(stack, name, **wishes)  # type: ignore[arg-type]
        return job.apply()

    yield make
    for job in made.values():
        job.delete()
