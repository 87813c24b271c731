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
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

import penstock
from penstock.common.config import options
from penstock.common.config.memory import DEFAULT_DRIVER_HEAP, DEFAULT_HEAP, MIB
from penstock.common.errors import ClusterError
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.credentials import Credentials, new_secret, write_private
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.executor.executor_process import Launch, kill_session, state_folder
from penstock.jobmanager.cluster.jvm import class_archive
from penstock.jobmanager.cluster.jvm import classes as jvm_package
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.jobmanager.cluster.registry import Member, Registry
from penstock.jobmanager.cluster.slot_pool import SlotPool
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS, ExecutorInfo, Slot, slots_of
from penstock.jobmanager.cluster.spark_sql import SparkSql
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import TaskEnd
from penstock.taskmanager.exchange.segments import SEGMENT_BYTES
from penstock.taskmanager.local_folders import LOCAL_DIR

EXCHANGE_BYTES = 2 * 2**20
"""What waits between two levels in the buffers of a sender, and as much in those of a receiver; at least two segments for
each slot. With little a slow task slows its senders soon, and a barrier has little to wait for."""
_ENVIRONMENT = "spark.executorEnv."
_HEAP = "spark.executor.memory"
_EMBEDDED_EXECUTOR = "driver"
"""Spark's name for the executor that is in the driver's JVM."""
EMBEDDED_MEMBER = "worker-0"
"""The TaskManager of a cluster whose tasks run in the driver's JVM."""
_MOST_TASKS = 4096
"""Of a stage, which has one for each slot of its job."""
_LOOPBACK = "127.0.0.1"
_SHOWN = 2000
"""Characters of what a JVM wrote that could not be started."""
_ONLY_WARNINGS = "-Dlog4j2.level=WARN"
"""Else the driver writes its settings before anything can be set."""
_STARTUP = ("spark.auth", "spark.rpc", "spark.network", "spark.ssl", "spark.port.")
"""Settings that begin so an executor needs before it can ask for the others, as those that end with `.port`. They are on its command
line, which anybody can read: passwords and the secret are not among them."""

logger = logging.getLogger(__name__)


@dataclass
class ClusterConfig:
    """How the cluster is laid out."""

    host: str = "127.0.0.1"
    driver_port: int = 0
    block_manager_port: int = 0
    executor_memory_mb: int = DEFAULT_HEAP // MIB
    """Heap of an executor, where its TaskManager does not say another."""
    driver_memory_mb: int = DEFAULT_DRIVER_HEAP // MIB
    secret: str = field(default_factory=new_secret)
    """What the processes of the cluster prove to each other; see `credentials`."""
    local_dir: str = ""
    python: str = sys.executable
    python_path: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Environment of the Python workers (credentials of the object store …)."""
    extra_conf: dict[str, str] = field(default_factory=dict)
    app_name: str = "penstock"
    log: LogSettings = field(default_factory=LogSettings)
    """How much of what executors write is kept, where this process starts them."""
    redaction: Redaction = field(default_factory=Redaction)
    embedded: bool = False
    """Tasks run in the driver's own JVM: it is the executor of all slots, and no other comes."""


_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
}
"""Nothing of Spark's own is shown or noted."""


class SparkCluster:
    """The SparkContext of one JobManager, and who runs executors for it."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        if _HEAP in config.extra_conf:
            logger.warning(
                "%s=%s has no effect: set %s for the heap of executors, in MiB",
                _HEAP,
                config.extra_conf[_HEAP],
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

        settings = self._conf()
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
            ],
            class_path=settings.get("spark.executor.extraClassPath", ""),
            properties={key: value for key, value in settings.items() if _is_for_the_start(key)},
            environment=_executor_environment(settings) | {"SPARK_USER": self.context.sparkUser()},
            library_path=settings.get("spark.executor.extraLibraryPath", ""),
        )

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
        lines = (f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        write_private(path, "".join(lines).encode("ascii"))
        given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        of_workers = {}
        if self.config.embedded:
            of_workers = {LOCAL_DIR: state_folder(self.config.local_dir)} | _executor_environment(settings)
        return of_workers | {
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(path))} --load-spark-defaults {given}",
            # Else Spark looks for the machine's addresses.
            "SPARK_LOCAL_IP": _LOOPBACK,
            "SPARK_LOCAL_HOSTNAME": self.config.host,
        }

    def _shared_conf(self) -> dict[str, str]:
        """Of driver and executors; stronger than settings of a job."""
        return {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.ui.killEnabled": "false",
            "spark.shuffle.manager.incremental": "penstock.SealedShuffleManager",
            "spark.authenticate.secret": self.credentials.secret,
            **self.credentials.spark_conf(),
        }

    def _conf(self) -> dict[str, str]:
        config = self.config
        java_home = find_java()
        jvm_options = " ".join([*class_archive.jvm_options(java_home), _ONLY_WARNINGS])
        conf = _QUIET | {
            "spark.app.name": config.app_name,
            "spark.driver.host": config.host,
            "spark.driver.bindAddress": config.host,
            "spark.driver.memory": f"{config.driver_memory_mb}m",
            "spark.driver.extraJavaOptions": jvm_options,
            _HEAP: f"{config.executor_memory_mb}m",
            "spark.rpc.netty.dispatcher.numThreads": "2",
            "spark.rpc.io.threads": "2",
            "spark.shuffle.io.clientThreads": "2",
            "spark.shuffle.io.serverThreads": "2",
            "spark.local.dir": config.local_dir,
            "spark.task.maxFailures": "1",
            "spark.stage.maxConsecutiveAttempts": "1",
            "spark.speculation": "false",
            "spark.executor.syncLogLevel.enabled": "true",
            "spark.locality.wait": "10s",
            "spark.shuffle.reduceLocality.enabled": "false",
            "spark.shuffle.compress": "false",
            "spark.shuffle.spill.compress": "false",
            "spark.broadcast.compress": "false",
            "spark.files.fetchFailure.unRegisterOutputOnHost": "true",
            "spark.excludeOnFailure.enabled": "false",
            "spark.network.timeout": "60s",
            "spark.executor.heartbeatInterval": "5s",
            "spark.network.timeoutInterval": "5s",
            "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
            "spark.rpc.askTimeout": "30s",
            "spark.python.worker.reuse": "true",
            # Of several idle workers Spark would take the one that waits the longest, not the one that holds the state.
            "spark.python.factory.idleWorkerMaxPoolSize": "1",
            "spark.python.daemon.module": "penstock.jobmanager.cluster.python_daemon",
            "spark.python.worker.faulthandler.enabled": "true",
            "spark.cleaner.periodicGC.interval": "10min",
            # Rows are sent as they are written (jvm/PromptWriter.java): nothing has to look for those that wait.
            "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "60000",
            "spark.shuffle.streaming.networkBufferSize": str(2 * SEGMENT_BYTES),
            "spark.shuffle.streaming.writerMaxMemory": str(EXCHANGE_BYTES),
            "spark.shuffle.streaming.readerMaxMemory": str(EXCHANGE_BYTES),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(self._python_path()),
            "spark.executorEnv.PYTHONHASHSEED": "0",
            "spark.executorEnv.OMP_NUM_THREADS": "1",
            "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        extra_class_path = class_archive.extra_class_path(java_home)
        if extra_class_path:
            conf["spark.driver.extraClassPath"] = extra_class_path
        if config.embedded:
            # Of DataFrames. Else there were as many tasks at once, with a Python worker for each, as there may be of jobs.
            conf["spark.default.parallelism"] = str(max(2, os.cpu_count() or 1))
            conf["spark.sql.shuffle.partitions"] = str(4 * max(2, os.cpu_count() or 1))
        if config.driver_port:
            conf["spark.driver.port"] = str(config.driver_port)
        if config.block_manager_port:
            conf["spark.driver.blockManager.port"] = str(config.block_manager_port)
        for name, value in config.environment.items():
            conf[f"spark.executorEnv.{name}"] = value
        return conf | config.extra_conf | self._shared_conf()

    def _python_path(self) -> list[str]:
        package_root = str(Path(penstock.__file__).resolve().parents[1])
        inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        return list(dict.fromkeys([*self.config.python_path, package_root, *inherited]))

    # --- executors and epochs ---------------------------------------------------------------------------------

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


def _executor_environment(settings: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(_ENVIRONMENT): value for key, value in settings.items() if key.startswith(_ENVIRONMENT)}


def _is_for_the_start(key: str) -> bool:
    if key == "spark.authenticate.secret" or "password" in key.lower():
        return False
    return key.startswith(_STARTUP) or key.endswith(".port")


def _escaped(text: str) -> str:
    r"""As a key or a value of a Java properties file.

    >>> print(_escaped("=é"))
    \u003d\u00e9
    """
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
