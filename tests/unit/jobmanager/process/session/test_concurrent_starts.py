"""Two programs that arrive together at a new session share one cluster. It starts once, and both wait for it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.master.master_cluster import MasterClusterProvider
from penstock.jobmanager.process.session import embedded
from penstock.jobmanager.process.session.embedded import LocalClusterProvider

SETTINGS = JobSettings.from_configuration({})


class SlowCluster:
    """A cluster that, like Spark, refuses a second context."""

    starts = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.spark = self
        self.is_up = False

    def start(self) -> None:
        SlowCluster.starts += 1
        if SlowCluster.starts > 1:
            raise ValueError("Cannot run multiple SparkContexts at once")
        time.sleep(0.05)
        self.is_up = True


class FakeRunner:
    def __init__(self, cluster: SlowCluster) -> None:
        assert cluster.is_up, "the cluster is used before it has started"
        self.cluster = cluster

    def close(self) -> None: ...


def fake_runner(cluster: Any, **_: Any) -> FakeRunner:
    return FakeRunner(cluster)


@pytest.fixture(params=["local", "master"])
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(SlowCluster, "starts", 0)
    if request.param == "local":
        monkeypatch.setattr("penstock.jobmanager.runners.pipelined_runner.create_runner", fake_runner)
        monkeypatch.setattr(embedded, "new_local_cluster", lambda *_: SlowCluster())
        monkeypatch.setattr(LocalClusterProvider, "_make_slots", lambda *_: None)
        return LocalClusterProvider()
    monkeypatch.setattr("penstock.jobmanager.process.master.master_cluster.create_runner", fake_runner)
    monkeypatch.setattr(MasterClusterProvider, "_start", start_master)
    monkeypatch.setattr(MasterClusterProvider, "_config", lambda *_: None)
    return MasterClusterProvider(Configuration({}))


def start_master(self: Any, config: Any) -> None:
    cluster = SlowCluster()
    cluster.start()
    self.cluster = cluster


def test_programs_that_arrive_together_share_one_cluster(provider: Any) -> None:
    with ThreadPoolExecutor(4) as threads:
        runners = list(threads.map(lambda _: provider.runner_for(1, 1, SETTINGS, dataframes=False), range(4)))
    assert SlowCluster.starts == 1
    assert len({id(runner.cluster) for runner in runners}) == 1


def test_a_cluster_that_failed_to_start_does_not_count_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(SlowCluster):
        def start(self) -> None:
            raise ClusterError("no usable Java")

    monkeypatch.setattr(embedded, "new_local_cluster", lambda *_: Broken())
    provider = LocalClusterProvider()
    for _ in range(2):
        with pytest.raises(ClusterError, match="no usable Java"):
            provider.runner_for(1, 1, SETTINGS, dataframes=False)
