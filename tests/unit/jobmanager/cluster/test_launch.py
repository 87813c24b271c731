"""What the driver's settings make of the executors that it has started. Its context is a double."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.jobmanager.cluster.executor_process import Launch
from penstock.jobmanager.cluster.spark_cluster import ClusterConfig, SparkCluster

LaunchOf = Callable[..., Launch]


def context(settings: dict[str, str]) -> Any:
    """A SparkContext with these settings."""
    conf = SimpleNamespace(getAll=lambda: [("spark.driver.port", "7001"), *settings.items()])
    return SimpleNamespace(applicationId="app-1", getConf=lambda: conf, sparkUser=lambda: "somebody")


@pytest.fixture
def launch_of(tmp_path: Path) -> LaunchOf:
    def made(**settings: str) -> Launch:
        cluster = SparkCluster(ClusterConfig(local_dir=str(tmp_path / "driver")))
        cluster.context = context({key.replace("_", "."): value for key, value in settings.items()})
        return cluster._first_launch()

    return made


def test_executors_have_what_they_need_before_they_can_ask(launch_of: LaunchOf) -> None:
    launch = launch_of(
        spark_rpc_io_threads="2", spark_blockManager_port="7002", spark_executorEnv_A="b", spark_cores="1"
    )
    assert launch.driver_url == "spark://CoarseGrainedScheduler@127.0.0.1:7001"
    assert launch.properties == {
        "spark.driver.port": "7001",
        "spark.rpc.io.threads": "2",
        "spark.blockManager.port": "7002",
    }
    assert launch.environment == {"A": "b", "SPARK_USER": "somebody"}


def test_no_password_is_on_a_command_line(launch_of: LaunchOf) -> None:
    launch = launch_of(
        spark_authenticate_secret="hidden",
        spark_ssl_keyStorePassword="hidden",
        spark_ssl_rpc_keyPassword="hidden",
        spark_ssl_rpc_privateKeyPassword="hidden",
        spark_ssl_password="hidden",
        spark_ssl_rpc_protocol="TLSv1.3",
    )
    assert launch.properties == {"spark.driver.port": "7001", "spark.ssl.rpc.protocol": "TLSv1.3"}
