"""A master's process ends with what it cannot do without. The driver is a double."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.jobmanager.cluster.registry import Registry
from penstock.jobmanager.cluster.spark_cluster import free_port
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process import master_cluster
from penstock.jobmanager.process.master_cluster import MasterClusterProvider


class Driver:
    """A SparkCluster that has no executors."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.credentials = type("Credentials", (), {"secret": config.secret})()
        self.registry = Registry()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wait_for_driver(self) -> int:
        time.sleep(60)
        return 0

    def look(self) -> tuple[list[Any], list[Any]]:
        return [], []


def test_a_master_whose_resource_manager_has_ended_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    codes: list[int] = []
    monkeypatch.setattr(master_cluster.os, "_exit", codes.append)
    monkeypatch.setattr(master_cluster.logging, "shutdown", lambda: None)
    monkeypatch.setattr(master_cluster, "SparkCluster", Driver)
    monkeypatch.setattr(master_cluster, "create_runner", lambda *_, **__: None)
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o600)
    settings = Configuration(
        {
            options.SPARK_SECRET_FILE.key: str(secret),
            options.JOBMANAGER_ADDRESS.key: "127.0.0.1",
            options.JOBMANAGER_PORT.key: str(free_port()),
        }
    )
    provider = MasterClusterProvider(settings)
    provider.runner_for(1, 1, JobSettings.from_configuration(settings), dataframes=False)

    def broken() -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(provider._resources, "_turn", broken)
    deadline = time.monotonic() + 10
    while not codes:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    provider.stop()
    assert codes == [70]
    assert "the resource manager has ended (no more); so does this process" in caplog.text
