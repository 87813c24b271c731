"""The start of the driver's JVM, and the gateway to it.

Spark starts the driver's JVM with a script that first starts another JVM, which computes the command. This other JVM takes a third of the
start time. This module computes the same command itself. It uses Spark's script only if Spark has a configuration for this machine
(`_is_as_installed`).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm.installation import spark_home
from penstock.jobmanager.cluster.python_daemon import start_with_warm_daemon

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""Options that Spark's launcher passes to a driver (`org.apache.spark.launcher.JavaModuleOptions`), except
`class_archive.INCUBATING`.
"""
_OTHERS_SAY = (
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DRIVER_MEMORY",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "SPARK_TESTING",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "_JAVA_OPTIONS",
)
"""Environment variables that Spark's scripts read."""
_LIBRARIES = "spark.driver.extraLibraryPath"
_POLL_S = 0.01


class DriverNotStarted(Exception):
    """Error of a JVM that ended before a connection was possible."""


def start_driver(
    java_home: str,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
    folder: str,
    *,
    python: str = "",
    on_output: Callable[[Any], object] | None = None,
) -> DriverJvm:
    """Start the JVM.

    Args:
        settings: Spark's settings. This function uses only the settings of the driver's JVM.
        environment: variables in addition to this process's. It must contain `PYSPARK_SUBMIT_ARGS`.
        folder: directory that only this user can read, and that the caller deletes.
        python: interpreter of a daemon that starts together with the JVM (`python_daemon`). Empty means that the JVM runs no tasks.
        on_output: function that is called when the JVM has started, with a stream of the output of the JVM and its child processes. None
            means that they use this process's output.
    """
    if not _is_as_installed(settings):
        return DriverJvm(None, "", environment)
    connection_file = os.path.join(tempfile.mkdtemp(prefix="gateway-", dir=folder), "told")
    start = partial(subprocess.Popen, stdin=subprocess.PIPE, start_new_session=True)
    if on_output is not None:
        start = partial(start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    of_jvm = {
        **os.environ,
        **environment,
        "SPARK_HOME": _home(),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_CONNECT_MODE": "0",
        "PYTHONHASHSEED": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": connection_file,
    }
    command = driver_command(java_home, settings, environment["PYSPARK_SUBMIT_ARGS"])
    process = start_with_warm_daemon(command, of_jvm, folder, python, start) if python else start(command, env=of_jvm)
    if on_output is not None:
        on_output(process.stdout)
    return DriverJvm(process, connection_file, environment)


class DriverJvm:
    """Driver's JVM, from its start on. PySpark is imported while the JVM starts.

    Args:
        process: the JVM. None means that Spark's script starts it.
        connection_file: file in which the JVM writes how to connect.
    """

    def __init__(
        self, process: subprocess.Popen[Any] | None, connection_file: str, environment: Mapping[str, str]
    ) -> None:
        self.process = process
        self._connection_file = connection_file
        self._environment = environment

    def gateway(self) -> Any:
        """Wait until the JVM has started, and return PySpark's gateway.

        Raises:
            DriverNotStarted: the JVM ended before a connection was possible.
        """
        from pyspark.java_gateway import launch_gateway
        from pyspark.serializers import UTF8Deserializer, read_int

        process = self.process
        if process is None:
            with _variables(self._environment):
                gateway = launch_gateway()
            self.process = gateway.proc
            return gateway
        while process.poll() is None and not os.path.isfile(self._connection_file):
            time.sleep(_POLL_S)
        if not os.path.isfile(self._connection_file):
            raise DriverNotStarted(f"it has ended with code {process.returncode}")
        with open(self._connection_file, "rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)
        gateway = connect_to_driver(port, secret)
        gateway.proc = process
        return gateway


def connect_to_driver(port: int, secret: str) -> Any:
    """Return PySpark's gateway to a driver that runs on this machine."""
    from pyspark.java_gateway import launch_gateway

    with _variables({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
        return launch_gateway()


def driver_command(java_home: str, settings: Mapping[str, str], submit_arguments: str) -> list[str]:
    """Return the command that Spark's launcher would use."""
    options = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    extra = settings.get("spark.driver.extraClassPath", "")
    entries = [extra, class_archive.spark_class_path()]
    return [
        os.path.join(java_home, "bin", "java"),
        *("-cp", os.pathsep.join(filter(None, entries))),
        f"-Xmx{settings['spark.driver.memory']}",
        *MODULE_OPTIONS,
        *options,
        "org.apache.spark.deploy.SparkSubmit",
        *shlex.split(submit_arguments),
    ]


def _home() -> str:
    return str(spark_home())


def _is_as_installed(settings: Mapping[str, str]) -> bool:
    """Return whether the settings are the only configuration of the driver's JVM."""
    if os.name != "posix" or settings.get(_LIBRARIES) or os.environ.get("PYSPARK_SUBMIT_ARGS"):
        return False
    elsewhere = os.environ.get("SPARK_HOME", _home()) != _home() or Path(_home(), "conf").exists()
    return not elsewhere and not any(os.environ.get(name) for name in _OTHERS_SAY)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process during the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
