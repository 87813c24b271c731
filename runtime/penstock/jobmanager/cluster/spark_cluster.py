"""The cluster of a Spark driver, whose JVM this process starts. The executors that TaskManagers start register with the driver.

None of Spark's own cluster managers is used (see `jvm/SlotCluster.java`). The owner of this object starts executors: `LocalCluster` on
this machine, `ResourceManager` for deployed TaskManagers. So the JobManager is one process with one JVM as its child.
One executor has all slots of its TaskManager. Spark's recovery is disabled (`spark.task.maxFailures=1`, no speculation), because the
JobMaster recovers jobs.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock.common.config import options
from penstock.common.errors import ClusterError
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.credentials import Credentials, write_private
from penstock.jobmanager.cluster.executor.console import Console
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.executor.executor_process import Launch, kill_session, state_folder
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm import classes as jvm_package
from penstock.jobmanager.cluster.jvm.driver import DriverJvm, start_driver
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.slot_pool import SlotPool
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS, ExecutorInfo, slots_of
from penstock.jobmanager.cluster.spark_access import Driver, SparkAccess
from penstock.jobmanager.cluster.spark_settings import (
    HEAP,
    ClusterConfig,
    escaped,
    executor_environment,
    is_startup_setting,
    spark_settings,
)
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.taskmanager.local_state.folders import LOCAL_DIR

_EMBEDDED_EXECUTOR = "driver"
"""Spark's name for the executor in the driver's JVM."""
EMBEDDED_MEMBER = "worker-0"
"""TaskManager of a cluster whose tasks run in the driver's JVM."""
_LOOPBACK = "127.0.0.1"
_SHOWN = 2000
"""Number of characters to show of the output of a JVM that failed to start."""
END_S = 10.0
"""Maximum time in seconds for the JVM to end. After this time, it is killed."""
LAST_OUTPUT_S = 1.0
"""Maximum time in seconds to read what an ended JVM and its workers have printed."""
logger = logging.getLogger(__name__)


class SparkCluster(SparkAccess):
    """SparkContext of one JobManager, and the executors that run for it."""

    registry: Registry
    slots: SlotPool

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        if HEAP in config.extra_conf:
            logger.warning(
                "%s=%s has no effect: set %s for the heap of executors, in MiB",
                HEAP,
                config.extra_conf[HEAP],
                options.EXECUTOR_MEMORY_MB.key,
            )
        self._own_dir: OwnedFolder | None = None
        if not config.local_dir:
            self._own_dir = OwnedFolder(tempfile.gettempdir(), "penstock-driver-")
            config.local_dir = self._own_dir.path
        os.makedirs(config.local_dir, exist_ok=True)
        self._private_dir = tempfile.mkdtemp(prefix="private-", dir=config.local_dir)
        self.credentials = Credentials.create(config.secret, self._private_dir)
        self.output = ExecutorOutput(config.local_dir, EMBEDDED_MEMBER, config.log, config.redaction)
        """Output of Python workers. If tasks run in the driver's JVM, it also contains the output of the JVM."""
        self.registry = Registry()
        self.embedded_slots = 0
        """Number of slots of a cluster whose tasks run in the driver's JVM. The owner of this object sets it."""
        self._copying: threading.Thread | None = None
        self._jvm: DriverJvm | None = None
        self._settings: dict[str, str] = {}
        """Spark's settings, from the start of the JVM on."""
        self._launch: Launch | None = None
        self.slots = SlotPool()

    def start_jvm(self) -> None:
        """Start the JVM, and return while it is starting. The start takes as much time as the imports of a job.

        Raises:
            ClusterError: no usable Java was found.
        """
        java_home = find_java()
        os.environ["JAVA_HOME"] = java_home
        os.environ.setdefault("SPARK_SCALA_VERSION", "2.13")
        os.environ["PYSPARK_PYTHON"] = self.config.python
        os.environ["SPARK_LOCAL_DIRS"] = self.config.local_dir
        self._settings = spark_settings(self.config, self.credentials)
        embedded = self.config.embedded
        try:
            self._jvm = start_driver(
                java_home,
                self._settings,
                self._launch_environment(self._settings),
                self._private_dir,
                python=self.config.python if embedded else "",
                on_output=self._keep_output if embedded else None,
            )
        except Exception as error:
            raise self._not_started(error) from error

    def _not_started(self, error: Exception) -> ClusterError:
        return ClusterError(
            f"Spark's JVM could not be started with {os.environ['JAVA_HOME']}: {error}{self._last_output()}",
            remedy="the lines above have the output of the JVM",
        )

    def start(self) -> None:
        """Start the JVM, if it was not started before, and the SparkContext.

        Raises:
            ClusterError: no usable Java was found, or the JVM did not start. The error contains the end of its output.
        """
        if self._jvm is None:
            self.start_jvm()
        assert self._jvm is not None
        from pyspark import SparkConf, SparkContext

        settings = self._settings
        try:
            gateway = self._jvm.gateway()
        except Exception as error:
            raise self._not_started(error) from error
        jvm = gateway.jvm
        self._quiet(jvm)
        jar = jvm_package.build_jar(gateway)
        jvm_package.add_to_driver(gateway, jar)
        # The launcher has resolved `spark.jars` and `spark.jars.packages`.
        given = jvm.java.lang.System.getProperty("spark.jars") or ""
        # Tasks in the driver's JVM use its class loader, so they need no copy of the engine's jar.
        settings["spark.jars"] = ",".join(filter(None, ["" if self.config.embedded else str(jar), given]))
        conf = SparkConf(loadDefaults=False).setMaster("penstock-embedded" if self.config.embedded else "penstock")
        for key, value in settings.items():
            conf.set(key, value)
        self.context = SparkContext(gateway=gateway, conf=conf)
        self.context.setLogLevel("OFF")
        self.load(gateway)
        for listener in (self._executors, self._failures):
            self.context._jsc.sc().addSparkListener(listener)
        if not self.config.embedded:
            self._launch = self._first_launch()

    def _keep_output(self, output: IO[bytes]) -> None:
        self.output.console = Console()
        self._copying = copy_output(output, "", self.output.take)

    def _last_output(self) -> str:
        """Return the output of a JVM that failed to start."""
        written = b"".join(log.read(-_SHOWN, _SHOWN).data for log in (self.output.log, self.output.stdout))
        return f"\n{written.decode(errors='replace')}" if written else ""

    def _first_launch(self) -> Launch:
        settings = dict(self.context.getConf().getAll())
        return Launch(
            executor_id="",
            driver_url=f"spark://CoarseGrainedScheduler@{self.config.host}:{settings['spark.driver.port']}",
            app_id=self.context.applicationId,
            java_options=[
                option
                for which in ("default", "extra")
                for option in shlex.split(settings.get(f"spark.executor.{which}JavaOptions", ""))
                if option != class_archive.INCUBATING
            ],
            class_path=settings.get("spark.executor.extraClassPath", ""),
            properties={key: value for key, value in settings.items() if is_startup_setting(key)},
            environment=executor_environment(settings) | {"SPARK_USER": self.context.sparkUser()},
            python=self.config.python,
            library_path=settings.get("spark.executor.extraLibraryPath", ""),
        )

    def launch(self) -> Launch:
        """Return the settings of a new executor that a TaskManager starts."""
        assert self._launch is not None
        return msgspec.structs.replace(self._launch, executor_id=self.registry.new_executor_id())

    @staticmethod
    def _quiet(jvm: Any) -> None:
        level = jvm.org.apache.logging.log4j.Level.OFF
        jvm.org.apache.logging.log4j.core.config.Configurator.setRootLevel(level)

    def _silence(self) -> None:
        """Silence the JVM's standard error. When thread pools shut down, Scala prints errors of their threads there, without a logger."""
        jvm = self._gateway.jvm
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))

    def _stop_accumulator_server(self) -> None:
        """Shut down PySpark's server for accumulators without waiting for it.

        The server checks once a second whether it must stop, and `stop` would wait for that check. The JVM may have ended before the check,
        and the server would then print a traceback.
        """
        server, self.context._accumulatorServer = self.context._accumulatorServer, None
        server.handle_error = _ignore_error
        server.server_shutdown = True
        threading.Thread(target=server.shutdown, name="accumulators-end", daemon=True).start()

    def _launch_environment(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the environment of the driver's JVM. A file contains the settings, because other users can read a command line."""
        path = Path(self._private_dir, "spark.properties")
        lines = (f"{escaped(key)}={escaped(value)}\n" for key, value in settings.items())
        write_private(path, "".join(lines).encode("ascii"))
        given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        of_workers = {}
        if self.config.embedded:
            of_workers = {LOCAL_DIR: state_folder(self.config.local_dir)} | executor_environment(settings)
        return of_workers | {
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(path))} --load-spark-defaults {given}",
            # Without it, Spark looks up the machine's addresses.
            "SPARK_LOCAL_IP": _LOOPBACK,
            "SPARK_LOCAL_HOSTNAME": self.config.host,
        }

    def executors(self) -> list[ExecutorInfo]:
        if self.config.embedded:
            return [ExecutorInfo(_EMBEDDED_EXECUTOR, self.config.host, 0, self.embedded_slots)]
        registered = self.registered()
        reserved = self.registry.reserved_executors()  # read it second: an executor is reserved before it registers
        return [executor for executor in registered if executor.id not in reserved]

    def registered(self) -> list[ExecutorInfo]:
        """Return the executors that are registered with the driver, by id. Some may be reserved."""
        found = []
        for line in self._executors.list(self.context._jsc.sc()).splitlines():
            executor_id, host, port, cores = line.split()
            found.append(ExecutorInfo(executor_id, host, int(port), int(cores) // MAX_PIPELINED_LEVELS))
        return sorted(found, key=lambda e: int(e.id) if e.id.isdigit() else -1)

    def workers(self) -> list[Worker]:
        executors = {executor.id: executor for executor in self.executors()}
        found = []
        for member in self.registry.members():
            executor = executors.get(member.executor)
            port, slots = (0, ()) if executor is None else (executor.port, tuple(slots_of([executor])))
            last_heartbeat = int(time.time() * 1000) if self.config.embedded else member.last_heartbeat
            found.append(Worker(member.id, member.host, port, slots, last_heartbeat, member.heap))
        return found

    def executor_changes(self) -> tuple[list[Member], list[Member]]:
        """Return the TaskManagers whose executor has registered with the driver since the last call, and the TaskManagers whose executor
        was removed.
        """
        return self.registry.compare_executors({executor.id for executor in self.registered()})

    def remove_executor(self, executor_id: str, reason: str) -> None:
        """Remove an executor that has ended. Without this call, the driver would notice the loss of a machine only
        later."""
        self._manager.remove(self.context._jsc.sc(), executor_id, reason)

    def driver(self) -> Driver:
        """Return the driver, for other processes of this machine."""
        parameters, config = self._gateway.java_parameters, self.config
        return Driver(parameters.port, parameters.auth_token, config.host, config.python, config.local_dir)

    @property
    def driver_pid(self) -> int:
        """Return the process id of the driver's JVM."""
        return int(self._gateway.jvm.java.lang.ProcessHandle.current().pid())

    def wait_for_driver(self) -> int:
        """Wait until the driver's JVM ends, and return its exit code."""
        return int(self._gateway.proc.wait())

    def stop(self) -> None:
        if self.context is not None:
            self._silence()
            self._stop_accumulator_server()
            self.context.stop()
            gateway, self.context = self._gateway, None
            gateway.shutdown()
            from pyspark import SparkContext

            SparkContext._gateway = None
            SparkContext._jvm = None
        self._end_jvm()
        if self._own_dir is not None:
            self._own_dir.remove()
        shutil.rmtree(self._private_dir, ignore_errors=True)

    def _end_jvm(self) -> None:
        jvm, self._jvm = self._jvm, None
        process = None if jvm is None else jvm.process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if self.config.embedded:
                kill_session(process.pid)
        if self._copying is not None:
            self._copying.join(LAST_OUTPUT_S)


@dataclass
class SharedCluster:
    """Cluster that this process has started.

    Attributes:
        more_slots: function that starts workers until the given number of slots exists. None means that workers are
            started elsewhere.
    """

    spark: SparkCluster
    more_slots: Callable[[int], object] | None = None


def _ignore_error(*_: object) -> None: ...


def free_port() -> int:
    """Return a port that was free at the time of the call."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
