"""`python job.py` starts the JVM of its first job before the job is checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.program import Program
from penstock.jobmanager.cluster.embedded_cluster import EmbeddedCluster
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session import default_executor, embedded
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.process.session.local_clusters import ClusterAhead, ClusterNeeds
from penstock.jobmanager.process.session.program_settings import settings_of


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Record the calls of clusters, which start no JVM."""
    found: list[str] = []
    for name in ("start_jvm", "start", "stop"):
        monkeypatch.setattr(EmbeddedCluster, name, lambda cluster, name=name: found.append(name))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delitem(sys.modules, "penstock.connectors.spark", raising=False)  # another test may have imported it
    return found


def settings(**given: str) -> JobSettings:
    return JobSettings.from_configuration({key.replace("__", "."): value for key, value in given.items()})


def program(**given: str) -> Program:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(given)).set_parallelism(2)
    env.from_collection([1]).map(str).set_parallelism(3).print()
    return env._take_program(None)


@pytest.mark.parametrize(
    ("job", "needs", "fits"),
    [
        ({}, ClusterNeeds(2), True),
        ({}, ClusterNeeds(40), False),
        ({}, ClusterNeeds(2, dataframes=True), False),
        ({}, ClusterNeeds(2, least_workers=1), False),
        ({"spark__task__cpus": "1"}, ClusterNeeds(2), False),
        ({"penstock__local-cluster": "processes"}, ClusterNeeds(2), False),
        ({"execution__checkpointing__dir": "s3://bucket/folder"}, ClusterNeeds(2), False),
    ],
)
def test_a_jvm_that_started_early_is_used_if_the_job_would_get_the_same_one(
    calls: list[str], job: dict[str, str], needs: ClusterNeeds, *, fits: bool
) -> None:
    ahead = ClusterAhead(settings(), ClusterNeeds(2))
    assert calls == ["start_jvm"]
    assert ahead.fits(settings(**job), needs) is fits


def test_a_jvm_with_an_earlier_environment_is_not_used(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = ClusterAhead(settings(), ClusterNeeds(2))
    monkeypatch.setenv("AWS_PROFILE", "set by the program after a refused job")
    assert not ahead.fits(settings(), ClusterNeeds(2))


def test_the_first_job_gets_the_jvm_that_started_early(calls: list[str]) -> None:
    provider = LocalClusterProvider()
    ahead = provider.ahead = ClusterAhead(settings(), ClusterNeeds(2))
    assert provider._started(2, settings(), dataframes=False) is ahead.cluster
    assert calls == ["start_jvm", "start"]
    provider.stop()
    assert calls == ["start_jvm", "start", "stop"]


def test_a_job_with_other_needs_stops_the_jvm_that_started_early(calls: list[str]) -> None:
    provider = LocalClusterProvider()
    ahead = provider.ahead = ClusterAhead(settings(), ClusterNeeds(2))
    assert provider._started(40, settings(), dataframes=False) is not ahead.cluster
    assert calls == ["start_jvm", "stop", "start"]


def test_a_refused_job_stops_the_jvm_at_the_end_of_the_process(calls: list[str]) -> None:
    provider = LocalClusterProvider()
    provider.ahead = ClusterAhead(settings(), ClusterNeeds(2))
    provider.stop()
    provider.stop()
    assert calls == ["start_jvm", "stop"]


@pytest.mark.parametrize(
    ("job", "starts"),
    [
        ({}, True),
        ({"penstock.runner": "in-process"}, False),
        ({"penstock.local-cluster": "processes"}, False),
        ({"taskmanager.numberOfTaskSlots": "2"}, False),
    ],
)
def test_only_jobs_in_one_jvm_start_it_early(calls: list[str], job: dict[str, str], *, starts: bool) -> None:
    ahead = default_executor._start_ahead(program(**job))
    assert (ahead is not None) is starts
    assert calls == ["start_jvm"] * starts
    if ahead is not None:
        assert ahead.fits(settings_of(program(**job)), ClusterNeeds(3))


def test_the_job_reports_that_java_is_missing(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cluster: EmbeddedCluster) -> None:
        raise ClusterError("no Java")

    class Recording(embedded.EmbeddedExecutor):
        def execute(self, program: Program) -> None:  # type: ignore[override]
            calls.append(f"execute with {self.provider.ahead}")

    monkeypatch.setattr(EmbeddedCluster, "start_jvm", fail)
    monkeypatch.setattr(embedded, "EmbeddedExecutor", Recording)
    default_executor.DefaultExecutor().execute(program())
    assert calls == ["stop", "execute with None"]
