"""The payload of a job for its workers: the settings of an attempt's tasks, and the graph."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec

from penstock.common.errors import InvalidJob
from penstock.common.logs.log_settings import LogSettings
from penstock.common.program.bundle import Bundle
from penstock.common.program.user_frames import user_line
from penstock.graph.job_graph import JobGraph
from penstock.metrics.scope import ScopeFormats
from penstock.taskmanager.code.pickler import dumps


class TaskSettings(msgspec.Struct):
    """The settings of the tasks of one attempt. The payload consists of these settings and the graph."""

    job_id: str
    job_name: str
    attempt: int
    backend: str = "hashmap"
    backend_options: dict[str, Any] = {}
    object_store_options: dict[str, Any] = {}
    merged_file_bytes: int = 0
    """Maximum bytes of an object that combines small state files; 0 means that files are not combined."""
    control_address: str = ""
    """host:port of the JobManager's control server; empty for the batched runner."""
    report_address: str = ""
    """Address to which the watchdog of the batched runner connects to report a hanging task."""
    control_token: str = ""
    """Key that encrypts the control channel."""
    step_limits: dict[str, float] = {}
    """Maximum seconds of the steps of `taskmanager.watching.watchdog`."""
    memory_limit: int = 0
    """Maximum bytes that this process may use; 0 means no limit."""
    buffer_timeout_s: float = 0.0
    """Pipelined runner: maximum time that a partly filled buffer waits.

    If it is infinite, buffers wait for a barrier.
    """
    from_local: bool = False
    """Keep copies of state files on the local disk, and restore from them."""
    work_dir: str = ""
    """Folder of local state files if the backend's option is not set; empty means the process's temporary folder."""
    metric_scopes: ScopeFormats | None = None
    """Beginnings of the identifiers of metrics; None means the defaults."""
    latency_interval_ms: int = 0
    latency_granularity: str = "operator"
    """See `taskmanager.watching.latency`."""
    python_path: list[str] = []
    """Search path of the program's modules."""
    bundle: Bundle | None = None
    """Bundle with the program's code and packages. This machine may not have the bundle yet."""
    working_folder: str = ""
    """Folder with links to the program's archives, in which functions work; empty means no archives."""
    task_managers: list[str] = []
    """Id of the TaskManager of every slot."""
    collect_lines: bool = True
    """Print sinks send their lines to the JobManager; False means that they write to this process's stdout."""
    log: LogSettings = LogSettings()
    secrets: list[str] = []
    """Secret values in the job's configuration, which the log must not contain."""


def encode_payload(graph: JobGraph, settings: TaskSettings) -> bytes:
    """Return the job for the workers. cloudpickle encodes the code, only between processes of one job and never in storage.

    Raises:
        InvalidJob: a part of the job cannot be sent. The error names its operator.
    """
    try:
        program = dumps(graph)
    except BaseException as error:
        raise _not_sendable(graph, error) from error
    # Pickle the program separately: a worker that cannot load it must still know the address to report to.
    return pickle.dumps((settings, program), pickle.HIGHEST_PROTOCOL)


def _not_sendable(graph: JobGraph, error: BaseException) -> InvalidJob:
    """Return the error for the author, with the first operator that cannot be pickled."""
    name = location = ""
    for node in graph.operators:
        try:
            dumps(node.operation)
        except BaseException as of_node:
            name, location, error = node.name, node.user_location, of_node
            break
    return InvalidJob(
        f"the job cannot be sent to the workers: {type(error).__name__}: {error}{user_line(error)}",
        remedy="use only functions and globals that pickle supports, and create connections, locks and similar objects in `open`",
        operator=name,
        location=location,
    )
