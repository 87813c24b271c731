"""The start of the driver's JVM: without Spark's launcher, or with it if the machine configures Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from penstock.jobmanager.cluster.jvm import driver
from penstock.jobmanager.cluster.jvm.class_archive import INCUBATING, extra_class_path
from penstock.jobmanager.cluster.jvm.java import find_java

HOME = Path(pyspark.__file__).parent


def launcher_command(settings: dict[str, str], folder: Path) -> list[str]:
    """Return the command that Spark's own launcher creates from the settings."""
    properties = folder / "properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [
        f"{find_java()}/bin/java",
        *("-cp", f"{HOME}/jars/*", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"),
        *("--properties-file", str(properties), "pyspark-shell"),
    ]
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "JAVA_HOME": find_java()}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [word.strip("\n") for word in output.split("\0") if word.strip()]


def test_the_driver_command_equals_that_of_sparks_launcher(tmp_path: Path) -> None:
    settings = {
        "spark.driver.memory": "640m",
        "spark.driver.extraJavaOptions": "-Xms128m -Dx=y",
        "spark.driver.extraClassPath": extra_class_path(find_java()) or "/first.jar",
    }
    theirs = launcher_command(settings, tmp_path)
    ours = driver.driver_command(find_java(), settings, f"--properties-file {tmp_path}/properties pyspark-shell")

    def comparable(words: list[str]) -> set[str]:
        paths = words[words.index("-cp") + 1].split(os.pathsep)
        others = [word for word in words if word not in ("-cp", words[words.index("-cp") + 1])]
        return {*others, *(path.rstrip("/") for path in paths if path)}

    # The launcher repeats some settings as arguments. The file has them anyway.
    end = theirs.index("org.apache.spark.deploy.SparkSubmit") + 1
    assert comparable([*theirs[:end], *ours[ours.index(theirs[end - 1]) + 1 :]]) == {*comparable(ours), INCUBATING}
    assert INCUBATING not in ours


@pytest.mark.parametrize(
    ("variables", "settings", "has_launcher"),
    [
        ({}, {}, False),
        ({"SPARK_CONF_DIR": "/etc/spark"}, {}, True),
        ({"SPARK_HOME": "/opt/spark"}, {}, True),
        ({"SPARK_HOME": str(HOME)}, {}, False),
        ({"PYSPARK_SUBMIT_ARGS": "--jars a.jar pyspark-shell"}, {}, True),
        ({}, {"spark.driver.extraLibraryPath": "/lib"}, True),
    ],
)
def test_sparks_launcher_runs_if_the_machine_configures_spark(
    variables: dict[str, str],
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    has_launcher: bool,
) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    by_launcher = SimpleNamespace(proc=None)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda: by_launcher)
    monkeypatch.setattr(driver, "driver_command", lambda *_: ["false"])
    arguments: Any = ("/java", {"spark.driver.memory": "1g"} | settings, {"PYSPARK_SUBMIT_ARGS": ""}, str(tmp_path))
    for python in ("", sys.executable):
        if has_launcher:
            assert driver.start_driver(*arguments, python=python).gateway() is by_launcher
            continue
        with pytest.raises(driver.DriverNotStarted, match="code 1"):
            driver.start_driver(*arguments, python=python).gateway()
