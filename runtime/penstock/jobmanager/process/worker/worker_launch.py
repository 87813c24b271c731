"""The start of a deployed TaskManager. The command line calls it.

This module is separate from `process.launch`, because a worker's process does not need the modules that `launch` imports. Each pod of a job
has such a process, which only starts an executor and waits.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import ExitStack

from penstock.common.config import options
from penstock.common.config.memory import MIB
from penstock.common.configuration import load_configuration
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.cluster.credentials import Credentials
from penstock.jobmanager.cluster.executor.executor_output import ExecutorOutput, copy_output
from penstock.jobmanager.cluster.executor.executor_process import Launch, start_executor, state_folder
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.worker_health import WorkerHealth, health_port
from penstock.jobmanager.process.agreed import executor_memory_mb, spark_secret
from penstock.jobmanager.process.log_lines import log_here
from penstock.jobmanager.process.worker.master_link import Child
from penstock.jobmanager.process.worker.warm_executor import WarmExecutorPolicy
from penstock.jobmanager.process.worker.worker_process import WorkerProcess
from penstock.taskmanager.local_state.files import LocalFilesSweeper
from penstock.taskmanager.local_state.folders import local_folders, stacks_folder, sweep_state


def run_worker(*, master: str, slots: int) -> int:
    """Run as a TaskManager of the master at `host:port` until a stop signal. Return the exit code."""
    settings = load_configuration()
    secret = spark_secret(settings)
    log, redaction = LogSettings.from_configuration(settings), Redaction.of(settings.to_dict(), secret)
    configured_root = settings.get(options.TMP_DIRECTORIES)
    temporary = None if configured_root else OwnedFolder(tempfile.gettempdir(), "penstock-worker-")
    root = configured_root if temporary is None else temporary.path
    assert root is not None
    work_dir = os.path.join(root, "executors")
    heap_mb = executor_memory_mb(settings, slots)
    with ExitStack() as stack:
        # Executors and their Python workers have ended at this point.
        stack.callback(sweep_state, state_folder(work_dir))
        disks = settings.to_dict().get("state.backend.rocksdb.localdir", "")
        folders_of_state = {state_folder(work_dir), *local_folders({"localdir": disks}, state_folder(work_dir))}
        stack.callback(LocalFilesSweeper(sorted(folders_of_state)).start().stop)
        if temporary is not None:
            stack.callback(temporary.remove)
        private = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-private-"))
        output = ExecutorOutput(private, "taskmanager", log, redaction)
        log_here(log, redaction, output.log)
        credentials = Credentials.create(secret, private)
        folders: dict[tuple[str, str], OwnedFolder] = {}

        def start(launch: Launch, host: str) -> Child:
            process, folders[launch.app_id, launch.executor_id] = start_executor(
                launch, slots=slots, host=host, work_dir=work_dir, heap_mb=heap_mb, credentials=credentials
            )
            assert process.stdout is not None
            copy_output(process.stdout, "", output.take_with_prefix(f"[{launch.executor_id}] "))
            return process

        def ended(launch: Launch) -> None:
            folder = folders.pop((launch.app_id, launch.executor_id), None)
            if folder is not None:
                folder.remove()

        stacks = stacks_folder(state_folder(work_dir))
        kills = MemoryKills()
        warm = WarmExecutorPolicy.of(settings, kills)
        worker = WorkerProcess(
            master,
            secret,
            slots,
            heap_mb * MIB,
            start,
            ended,
            kills=kills,
            logs=output.files,
            stacks=stacks,
            warm=warm,
        )
        port = health_port(settings)
        if port >= 0:
            health = WorkerHealth(port, lambda: worker.is_alive, lambda: worker.is_ready).start()
            stack.callback(health.stop)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, worker.end)
        return worker.run()
