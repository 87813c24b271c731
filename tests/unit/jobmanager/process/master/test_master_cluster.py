"""A master's process ends with the parts that it cannot work without. A double replaces the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError
from penstock.common.program.import_path import import_path
from penstock.jobmanager.cluster.members.registration import BEAT_S, PURPOSE, Leads, OnStandby, Register, ToTaskManager
from penstock.jobmanager.cluster.members.registry import Registry
from penstock.jobmanager.cluster.spark_cluster import free_port
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.master import master_cluster
from penstock.jobmanager.process.master.master_cluster import MasterClusterProvider
from penstock.taskmanager.control.channel import ControlConnection


class Driver:
    """A SparkCluster without executors."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.credentials = type("Credentials", (), {"secret": config.secret})()
        self.registry = Registry()
        self.stopped = False

    def start(self) -> None: ...

    def stop(self) -> None:
        self.stopped = True

    def wait_for_driver(self) -> int:
        time.sleep(60)
        return 0

    def executor_changes(self) -> tuple[list[Any], list[Any]]:
        return [], []


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    monkeypatch.setattr(master_cluster, "SparkCluster", Driver)
    monkeypatch.setattr(master_cluster, "create_runner", lambda cluster, **_: cluster)
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o600)
    return Configuration(
        {
            options.SPARK_SECRET_FILE.key: str(secret),
            options.JOBMANAGER_ADDRESS.key: "127.0.0.1",
            options.JOBMANAGER_PORT.key: str(free_port()),
        }
    )


def test_a_master_whose_resource_manager_has_ended_ends(
    settings: Configuration, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setattr("logging.shutdown", lambda: None)
    provider = MasterClusterProvider(settings)
    provider.runner_for(1, 1, JobSettings.from_configuration(settings.to_dict()), dataframes=False)

    def broken() -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(provider._resources, "_turn", broken)
    deadline = time.monotonic() + 10
    while not codes:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    provider.stop()
    assert codes == [70]
    assert "the resource manager has ended (no more); this process ends too" in caplog.text


class TestEarlyStart:
    """A driver that starts while the program is loaded."""

    ENTRY = "/opt/job/job.py"

    def wanted(self, settings: Configuration, **more: str) -> JobSettings:
        """Request a driver as a session does once the program has declared its settings."""
        job = JobSettings.from_configuration({**settings.to_dict(), **more})
        job.python_path.extend(dict.fromkeys(["/opt/job", *import_path()]))
        return job

    def test_the_job_gets_the_started_driver(self, settings: Configuration) -> None:
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        deadline = time.monotonic() + 10
        while provider.cluster is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ahead = provider.cluster
        assert provider.runner_for(1, 1, self.wanted(settings), dataframes=False) is ahead  # type: ignore[comparison-overlap]
        provider.stop()

    def test_a_program_mounted_as_a_link_gets_the_started_driver(self, settings: Configuration, tmp_path: Path) -> None:
        """Kubernetes mounts the files of a ConfigMap as links.

        The program's own folder is then the target of the link.
        """
        (tmp_path / "..data").mkdir()
        (tmp_path / "..data" / "job.py").touch()
        entry = tmp_path / "job.py"
        entry.symlink_to(tmp_path / "..data" / "job.py")
        provider = MasterClusterProvider(settings)
        provider.begin(str(entry))
        assert provider._early_start is not None
        provider._early_start.result()
        ahead: Any = provider.cluster
        wanted = JobSettings.from_configuration(settings.to_dict())
        wanted.python_path.extend([str(tmp_path), str(tmp_path / "..data"), *import_path()])
        assert provider.runner_for(1, 1, wanted, dataframes=False) is ahead
        provider.stop()

    def test_a_job_with_different_settings_gets_another_driver(self, settings: Configuration) -> None:
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        assert provider._early_start is not None
        provider._early_start.result()
        ahead: Any = provider.cluster
        runner: Any = provider.runner_for(1, 1, self.wanted(settings, **{"spark.task.cpus": "1"}), dataframes=False)
        assert runner is not ahead
        assert ahead.stopped
        assert runner.config.extra_conf == {"spark.task.cpus": "1"}
        provider.stop()

    def test_a_program_that_changes_the_module_path_gets_another_driver(self, settings: Configuration) -> None:
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        wanted = self.wanted(settings)
        wanted.python_path.insert(0, "/opt/more")
        runner: Any = provider.runner_for(1, 1, wanted, dataframes=False)
        assert runner.config.python_path[0] == "/opt/more"
        provider.stop()

    def test_an_error_at_the_start_is_reported_to_the_job(
        self, settings: Configuration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(self: Driver) -> None:
            raise ClusterError("no Java", remedy="install one")

        monkeypatch.setattr(Driver, "start", fail)
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        with pytest.raises(ClusterError, match="no Java"):
            provider.runner_for(1, 1, self.wanted(settings), dataframes=False)
        provider.stop()

    def test_an_early_failure_does_not_affect_a_job_with_different_settings(
        self, settings: Configuration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def start(self: Driver) -> None:
            if not self.config.extra_conf:
                raise ClusterError("no Java", remedy="install one")

        monkeypatch.setattr(Driver, "start", start)
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        runner: Any = provider.runner_for(1, 1, self.wanted(settings, **{"spark.task.cpus": "1"}), dataframes=False)
        assert runner.config.extra_conf == {"spark.task.cpus": "1"}
        provider.stop()

    def test_a_program_that_changes_settings_of_drivers_gets_another_one(
        self, settings: Configuration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        assert provider._early_start is not None
        provider._early_start.result()
        ahead: Any = provider.cluster
        monkeypatch.setenv("AWS_PROFILE", "lake")
        assert provider.runner_for(1, 1, self.wanted(settings), dataframes=False) is not ahead
        assert ahead.stopped
        provider.stop()

    def test_a_program_without_a_job_leaves_no_driver(
        self, settings: Configuration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[Driver] = []
        go_on = threading.Event()

        def start(self: Driver) -> None:
            made.append(self)
            go_on.wait(10)

        monkeypatch.setattr(Driver, "start", start)
        provider = MasterClusterProvider(settings)
        provider.begin(self.ENTRY)
        threading.Timer(0.2, go_on.set).start()
        provider.stop()
        assert [driver.stopped for driver in made] == [True]


def test_the_first_program_of_a_session_uses_the_driver_that_runs(
    settings: Configuration, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The start of a driver adds Spark's folder of files to the import path. This folder is not part of any program."""
    provider = MasterClusterProvider(settings)
    provider.begin()
    assert provider._early_start is not None
    provider._early_start.result()
    first = provider.cluster
    monkeypatch.syspath_prepend(tmp_path)
    provider.shared(settings)
    assert provider.cluster is first
    provider.stop()


class Elected:
    """This process in an election."""

    def __init__(self) -> None:
        self.short_id, self.leads, self.term = "me", False, 0
        self.on_lead: Any = None

    def lead(self, term: int) -> None:
        self.leads, self.term = True, term
        self.on_lead()


class TestStandby:
    """A master in an election: workers reach it before it leads."""

    def role(self, provider: MasterClusterProvider, settings: Configuration) -> Any:
        """Return the first message that a worker receives."""
        address = f"127.0.0.1:{settings.get(options.JOBMANAGER_PORT)}"
        connection = ControlConnection(address, "s" * 32, Register("tm", "10.0.0.1", 2, 1), purpose=PURPOSE)
        with closing(connection):
            deadline = time.monotonic() + 10
            while (frame := connection.poll(0.1)) is None:
                assert time.monotonic() < deadline
        return msgspec.msgpack.decode(frame, type=ToTaskManager)

    @pytest.fixture
    def standby(self, settings: Configuration) -> Iterator[tuple[MasterClusterProvider, Elected]]:
        provider, member = MasterClusterProvider(settings), Elected()
        provider.take_part_in(cast(Member, member), settings)
        yield provider, member
        provider.stop()

    def test_it_tells_workers_when_it_leads(
        self, standby: tuple[MasterClusterProvider, Elected], settings: Configuration
    ) -> None:
        provider, member = standby
        provider.begin()
        assert provider._early_start is not None
        provider._early_start.result()
        assert self.role(provider, settings) == OnStandby("me")
        member.lead(3)
        assert self.role(provider, settings) == Leads("me", 3)

    def test_workers_keep_a_leader_between_two_heartbeats_if_the_lease_is_short(self, settings: Configuration) -> None:
        provider = MasterClusterProvider(settings)
        provider.take_part_in(
            cast(Member, Elected()), Configuration(settings).set(options.LEASE_DURATION, timedelta(seconds=1))
        )
        assert provider._patience_s is not None
        assert provider._patience_s > 2 * BEAT_S

    def test_it_may_lead_before_its_driver_has_started(
        self, standby: tuple[MasterClusterProvider, Elected], settings: Configuration
    ) -> None:
        provider, member = standby
        member.lead(4)
        provider.begin()
        assert provider._early_start is not None
        provider._early_start.result()
        assert self.role(provider, settings) == Leads("me", 4)
