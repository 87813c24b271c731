"""The executors that the driver launches with its settings. A double replaces the SparkContext."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.jobmanager.cluster.credentials import Credentials
from penstock.jobmanager.cluster.executor.executor_process import Launch, executor_command
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig, spark_settings

LaunchOf = Callable[..., Launch]


def context(settings: dict[str, str]) -> Any:
    """Return a SparkContext with these settings."""
    conf = SimpleNamespace(getAll=lambda: [("spark.driver.port", "7001"), *settings.items()])
    return SimpleNamespace(applicationId="app-1", getConf=lambda: conf, sparkUser=lambda: "somebody")


@pytest.fixture
def launch_of(tmp_path: Path) -> LaunchOf:
    def made(**settings: str) -> Launch:
        cluster = SparkCluster(ClusterConfig(local_dir=str(tmp_path / "driver")))
        cluster.context = context({key.replace("_", "."): value for key, value in settings.items()})
        return cluster._first_launch()

    return made


def test_executors_have_the_settings_that_they_need_before_they_connect(launch_of: LaunchOf) -> None:
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


def test_the_default_java_options_come_first(launch_of: LaunchOf) -> None:
    launch = launch_of(spark_executor_extraJavaOptions="-Dx=2 '-Dy=a b'", spark_executor_defaultJavaOptions="-Dx=1")
    assert launch.java_options == ["-Dx=1", "-Dx=2", "-Dy=a b"]


def test_java_options_name_the_executor(launch_of: LaunchOf) -> None:
    launch = launch_of(spark_executor_extraJavaOptions="-Xlog:gc:file=/tmp/{{APP_ID}}-{{EXECUTOR_ID}}.log -Dz")
    seventh = msgspec.structs.replace(launch, executor_id="7")
    assert seventh.own_java_options() == ["-Xlog:gc:file=/tmp/app-1-7.log", "-Dz"]


def test_libraries_of_a_job_precede_those_of_the_machine(
    launch_of: LaunchOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(
        spark_executor_extraLibraryPath="/opt/hadoop/native", spark_executor_extraJavaOptions="-Did={{EXECUTOR_ID}}"
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/lib/own")
    launch = msgspec.structs.replace(launch, executor_id="7")
    credentials = Credentials.create("s" * 32, tmp_path / "private")
    command, environment = executor_command(
        launch, slots=1, host="", work_dir="/w", folder="/w/7", heap_mb=1, credentials=credentials
    )
    assert environment["LD_LIBRARY_PATH"] == "/opt/hadoop/native:/usr/lib/own"
    assert "-Did=7" in command


def test_a_heap_size_set_as_for_spark_is_refused_with_the_right_option(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SparkCluster(ClusterConfig(local_dir=str(tmp_path), extra_conf={"spark.executor.memory": "4g"}))
    assert caplog.messages == [
        "spark.executor.memory=4g has no effect: set penstock.executor.memory-mb for the heap of executors, in MiB"
    ]


def test_separate_jvms_keep_few_rows_and_the_settings_of_a_job_override_it(launch_of: LaunchOf, tmp_path: Path) -> None:
    """A driver that runs tasks itself has the rows of all slots, and keeps its setting."""
    (tmp_path / "x").mkdir()
    secrets = Credentials.create("s" * 32, str(tmp_path / "x"))
    launch = launch_of(spark_executor_extraJavaOptions="-Xmn99m")
    command, _ = executor_command(
        launch, slots=1, host="h", work_dir="/w", folder="/w/e", heap_mb=480, credentials=secrets
    )
    young = [option for option in command if option.startswith("-Xmn")]
    assert young == ["-Xmn16m", "-Xmn99m"], "Java takes the last one"
    options = "spark.driver.extraJavaOptions"
    assert "-Xmn16m" in spark_settings(ClusterConfig(), secrets)[options]
    assert "-Xmn" not in spark_settings(ClusterConfig(embedded=True), secrets)[options]
