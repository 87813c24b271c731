"""The cluster as Spark's driver sees it, in this process's JVM: executors that TaskManagers start register with it.

Spark has no cluster manager of its own here (`jvm/SlotCluster.java`): who starts executors is the owner's affair, `LocalCluster`
for those of this machine, `ResourceManager` for deployed TaskManagers. So the JobManager is one process with one JVM under it.
One executor has all slots of its TaskManager. Spark's own recovery is off (`spark.task.maxFailures=1`, no speculation): recovery
is the JobMaster's.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock.common.config import options
from penstock.common.errors import ClusterError
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.jobmanager.cluster.credentials import Credentials, write_private
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.executor.executor_process import Launch, kill_session, state_folder
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm import classes as jvm_package
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.jobmanager.cluster.members.registry import Member, Registry
from penstock.jobmanager.cluster.slot_pool import SlotPool
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS, ExecutorInfo, Slot, slots_of
from penstock.jobmanager.cluster.spark_settings import (
    HEAP,
    ClusterConfig,
    escaped,
    executor_environment,
    is_for_the_start,
    spark_settings,
)
from penstock.jobmanager.cluster.spark_sql import SparkSql
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import TaskEnd
from penstock.taskmanager.local_state.folders import LOCAL_DIR

_EMBEDDED_EXECUTOR = "driver"
"""Spark's name for the executor that is in the driver's JVM."""
EMBEDDED_MEMBER = "worker-0"
"""The TaskManager of a cluster whose tasks run in the driver's JVM."""
_MOST_TASKS = 4096
"""Of a stage, which has one for each slot of its job."""
_LOOPBACK = "127.0.0.1"
_SHOWN = 2000
"""Characters of what a JVM wrote that could not be started."""
logger = logging.getLogger(__name__)


class SparkCluster:
    """The SparkContext of one JobManager, and who runs executors for it."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
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
        """What Python workers write, and the JVM, where tasks run in this one's."""
        self.context: Any = None
        self.registry = Registry()
        """The TaskManagers."""
        self.embedded_slots = 0
        """Of a cluster whose tasks run in the driver's JVM: as many as its owner says."""
        self._launch: Launch | None = None
        self._epochs: Any = None
        self._executors: Any = None
        self._manager: Any = None
        self._failures: Any = None
        self.slots = SlotPool()
        """Which job holds which, by id (see `slots.Slot`)."""
        self.sql = SparkSql(self)
        """DataFrames on this cluster."""

    def start(self) -> None:
        """Start JVM and SparkContext.

        Raises:
            ClusterError: no usable Java, or the JVM did not start; with the end of its output.
        """
        java_home = find_java()
        os.environ["JAVA_HOME"] = java_home
        os.environ.setdefault("SPARK_SCALA_VERSION", "2.13")
        os.environ["PYSPARK_PYTHON"] = self.config.python
        os.environ["SPARK_LOCAL_DIRS"] = self.config.local_dir
        from pyspark import SparkConf, SparkContext

        from penstock.jobmanager.cluster.jvm.driver import start_driver

        settings = spark_settings(self.config, self.credentials)
        environment = self._launch_environment(settings)
        embedded = self.config.embedded
        try:
            gateway = start_driver(
                java_home,
                settings,
                environment,
                self._private_dir,
                python=self.config.python if embedded else "",
                on_output=self._keep_output if embedded else None,
            )
        except Exception as error:
            raise ClusterError(
                f"Spark's JVM could not be started with {java_home}: {error}{self._said()}",
                remedy="see the lines above",
            ) from error
        jvm = gateway.jvm
        self._quiet(jvm)
        jar = jvm_package.build_jar(gateway)
        jvm_package.add_to_driver(gateway, jar)
        # The launcher has looked up what `spark.jars` and `spark.jars.packages` name.
        given = jvm.java.lang.System.getProperty("spark.jars") or ""
        settings["spark.jars"] = ",".join(filter(None, [str(jar), given]))
        conf = SparkConf(loadDefaults=False).setMaster("penstock-embedded" if self.config.embedded else "penstock")
        for key, value in settings.items():
            conf.set(key, value)
        self.context = SparkContext(gateway=gateway, conf=conf)
        self.context.setLogLevel("OFF")
        self._gateway = gateway
        self._epochs = jvm_package.load(gateway, "penstock.Epoch")
        self._executors = jvm_package.load(gateway, "penstock.Executors")
        self._manager = jvm_package.load(gateway, "penstock.SlotCluster")
        self._failures = jvm_package.load(gateway, "penstock.TaskFailures")
        self._readings = jvm_package.load(gateway, "penstock.Readings")
        for listener in (self._executors, self._failures):
            self.context._jsc.sc().addSparkListener(listener)
        if not self.config.embedded:
            self._launch = self._first_launch()

    def _keep_output(self, output: IO[bytes]) -> None:
        copy_output(output, "", self.output.take)

    def _said(self) -> str:
        """What a JVM wrote that could not be started."""
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
            properties={key: value for key, value in settings.items() if is_for_the_start(key)},
            environment=executor_environment(settings) | {"SPARK_USER": self.context.sparkUser()},
            python=self.config.python,
            library_path=settings.get("spark.executor.extraLibraryPath", ""),
        )

    def readings(self) -> str:
        """What the driver's JVM says of itself, for `JvmReadings.parse`; empty: it does not run."""
        return "" if self.context is None else str(self._readings.text())

    def launch(self) -> Launch:
        """Another executor, to be started by a TaskManager."""
        assert self._launch is not None
        return msgspec.structs.replace(self._launch, executor_id=self.registry.new_executor_id())

    @staticmethod
    def _quiet(jvm: Any) -> None:
        level = jvm.org.apache.logging.log4j.Level.OFF
        jvm.org.apache.logging.log4j.core.config.Configurator.setRootLevel(level)

    def _silence(self) -> None:
        """What Spark's threads cannot do any more as their pools go down is printed by Scala, past every logger."""
        jvm = self._gateway.jvm
        jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))

    def _let_accumulators_go(self) -> None:
        """PySpark's server for them looks once a second whether it is to end, and `stop` would wait for that. Until it looks the JVM may
        have gone, which the server would print a traceback of."""
        server, self.context._accumulatorServer = self.context._accumulatorServer, None
        server.handle_error = _say_nothing
        server.server_shutdown = True
        threading.Thread(target=server.shutdown, name="accumulators-end", daemon=True).start()

    def _launch_environment(self, settings: dict[str, str]) -> dict[str, str]:
        """Of the driver's JVM. Its settings are in a file, because anybody can read a command line."""
        path = Path(self._private_dir, "spark.properties")
        lines = (f"{escaped(key)}={escaped(value)}\n" for key, value in settings.items())
        write_private(path, "".join(lines).encode("ascii"))
        given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        of_workers = {}
        if self.config.embedded:
            of_workers = {LOCAL_DIR: state_folder(self.config.local_dir)} | executor_environment(settings)
        return of_workers | {
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(path))} --load-spark-defaults {given}",
            # Else Spark looks for the machine's addresses.
            "SPARK_LOCAL_IP": _LOOPBACK,
            "SPARK_LOCAL_HOSTNAME": self.config.host,
        }

    def executors(self) -> list[ExecutorInfo]:
        """Executors that are registered now, by id."""
        if self.config.embedded:
            return [ExecutorInfo(_EMBEDDED_EXECUTOR, self.config.host, 0, self.embedded_slots)]
        found = []
        for line in self._executors.list(self.context._jsc.sc()).splitlines():
            executor_id, host, port, cores = line.split()
            found.append(ExecutorInfo(executor_id, host, int(port), int(cores) // MAX_PIPELINED_LEVELS))
        return sorted(found, key=lambda e: int(e.id) if e.id.isdigit() else -1)

    def all_slots(self) -> dict[str, Slot]:
        """Slots of the executors that are registered now, by id."""
        return slots_of(self.executors())

    def workers(self) -> list[Worker]:
        """TaskManagers that are there now, each with the slots that can take a task."""
        executors = {executor.id: executor for executor in self.executors()}
        found = []
        for member in self.registry.members():
            executor = executors.get(member.executor)
            port, slots = (0, ()) if executor is None else (executor.port, tuple(slots_of([executor])))
            heard = int(time.time() * 1000) if self.config.embedded else member.last_heartbeat
            found.append(Worker(member.id, member.host, port, slots, heard, member.heap))
        return found

    def look(self) -> tuple[list[Member], list[Member]]:
        """TaskManagers whose executor the driver has now, and had not before; and those whose executor it has lost."""
        return self.registry.seen({executor.id for executor in self.executors()})

    def remove_executor(self, executor_id: str, why: str) -> None:
        """It is known to have ended; the driver would notice it later, if the machine has gone with it."""
        self._manager.remove(self.context._jsc.sc(), executor_id, why)

    def wait_for_slots(self, count: int, timeout_s: float) -> dict[str, Slot]:
        """Wait until there are `count` slots, at most `timeout_s`; returns those that are there."""
        deadline = time.monotonic() + timeout_s
        while True:
            slots = self.all_slots()
            if len(slots) >= count or time.monotonic() > deadline:
                return slots
            time.sleep(0.1)

    def run_epoch(
        self, commands: bytes, placement: list[Slot], functions: Any, *, job_id: str, pipelined: bool, group: str
    ) -> bytes:
        """One epoch as one Spark job; see `jvm/Epoch.java`."""
        context = self.context._jsc.sc()
        locations = self._strings([slot.executor.location for slot in placement])
        slots = self._strings([slot.id for slot in placement])
        rows = self._epochs.run(context, bytearray(commands), locations, slots, functions, job_id, pipelined, group)
        return bytes(rows)

    def release_workers(self, job_id: str, locations: list[str]) -> None:
        """Executors need no longer keep the Python workers of the job; see `jvm/HeldWorkers.java`. Does not wait."""
        self._epochs.release(self.context._jsc.sc(), self._strings(locations), job_id)

    def _strings(self, values: list[str]) -> Any:
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def new_function_array(self, functions: list[Any]) -> Any:
        array = self._gateway.new_array(self._gateway.jvm.org.apache.spark.api.python.PythonFunction, len(functions))
        for index, function in enumerate(functions):
            array[index] = function
        return array

    def running_tasks(self, group: str) -> list[tuple[int, int]]:
        """Partition and stage (counted from 0 within its job) of the tasks of this group's job that run now."""
        tracker, store = self.context.statusTracker(), self.context._jsc.sc().statusStore()
        found = []
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            for level, stage_id in enumerate(sorted(job.stageIds) if job is not None else ()):
                tasks = store.taskList(stage_id, 0, _MOST_TASKS)
                for index in range(tasks.size()):
                    task = tasks.apply(index)
                    if task.status() == "RUNNING":
                        found.append((int(task.index()), level))
        return sorted(found)

    def failures(self, group: str) -> list[TaskEnd]:
        """What the tasks of this group's jobs have failed with so far, as far as Spark has told it already."""
        return [TaskEnd.parse(lines) for lines in self._failures.of(group)]

    def cancel(self, group: str) -> None:
        self.context.cancelJobGroup(group)

    @property
    def driver_pid(self) -> int:
        """Process id of the driver's JVM."""
        return int(self._gateway.jvm.java.lang.ProcessHandle.current().pid())

    def wait_for_driver(self) -> int:
        """Wait until the driver's JVM ends, and return its exit code."""
        return int(self._gateway.proc.wait())

    def stop(self) -> None:
        if self.context is not None:
            self._silence()
            self._let_accumulators_go()
            self.context.stop()
            gateway, self.context = self._gateway, None
            gateway.shutdown()
            process = getattr(gateway, "proc", None)
            if process is not None:
                process.stdin.close()
                process.wait(10)
                if self.config.embedded:
                    kill_session(process.pid)
            from pyspark import SparkContext

            SparkContext._gateway = None
            SparkContext._jvm = None
        if self._own_dir is not None:
            self._own_dir.remove()
        shutil.rmtree(self._private_dir, ignore_errors=True)


def _say_nothing(*_: object) -> None: ...


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
