"""One cluster, one S3 server, one installation of the operator for all end-to-end tests; jobs come and go.

For a quick second run: PENSTOCK_E2E_CLUSTER names a development cluster that is up and stays up, and with
PENSTOCK_E2E_IMAGES=as-built the images that were built last are taken.
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
from tools.s3server import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

collect_ignore = ["job"]
"""What goes into the images; its modules are found there under other names."""


def _interrupt(*_: object) -> None:
    """A run that is ended from outside takes its cluster down, too."""
    raise KeyboardInterrupt


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Fails, with every reason, on a machine that cannot host it."""
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
    """Makes FlinkJobs; of one that is there and not Ready the spec is put back. They go with the module's last test."""
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
