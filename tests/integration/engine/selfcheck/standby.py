"""Two deployed masters of one job, and workers. Tests kill and stop the processes in any order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

import httpx
import msgspec
import psutil
import yaml

from penstock.jobmanager.cluster.spark_cluster import free_port
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.storage_claims import FOLDER
from tests.integration.engine.selfcheck.driver import ROOT
from tests.integration.engine.selfcheck.job import Plan

PROGRAM = """
import json, sys
from penstock.datastream import StreamExecutionEnvironment
from tests.integration.engine.selfcheck.job import Plan, build
job = json.loads(sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
build(env, Plan(**job["plan"]), job["output"])
env.execute("self-verifying")
"""
MASTERS = ("a", "b")
OWN = ("jobmanager.rpc.port", "rest.port", "spark.driver.port", "spark.blockManager.port")
"""Settings with a port of each master."""
PLACES = {"high-availability.storageDir": "ha", "execution.checkpointing.dir": "checkpoints"}
"""Settings with a storage folder, and the name of the folder."""


class Standbys:
    """Masters `a` and `b`, and workers: `worker`, `worker-2` and so on. A process that ends is started again, as Kubernetes does. The `with` block kills all of them."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str],
        plan: Plan,
        output: str,
        job_id: str,
        workers: int = 1,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._environment = environment or {}
        self.folder, self.job_id = folder, job_id
        self.has_warm_executors = settings.get("penstock.worker.warm-executor") != "false"
        (folder / "secret").write_text("s" * 64)
        shared = {
            **settings,
            "jobmanager.rpc.address": "127.0.0.1",
            "security.spark.secret-file": str(folder / "secret"),
            "io.tmp.dirs": str(folder / "work"),
            "high-availability.type": "file",
            "high-availability.storageDir": str(folder / "ha"),
        }
        (folder / "penstock.yaml").write_text(yaml.safe_dump(shared))
        (folder / "program.py").write_text(PROGRAM)
        self.ports = {name: {key: free_port() for key in OWN} for name in MASTERS}
        job = json.dumps({"plan": asdict(plan), "output": output})
        addresses = ",".join(f"127.0.0.1:{self.ports[name][OWN[0]]}" for name in MASTERS)
        self._worker = ["worker", "--master", addresses, "--slots", str(2 // workers)]
        self.workers = ["worker", *(f"worker-{number}" for number in range(2, workers + 1))]
        self._commands = dict.fromkeys(self.workers, self._worker)
        for name in MASTERS:
            places = {key: f"file://{self._link(name, kind)}" for key, kind in PLACES.items()}
            own = [f"-D{key}={value}" for key, value in {**self.ports[name], **places}.items()]
            start = ["--entry", "program.py", "--job-id", job_id, "--restore-latest"]
            self._commands[name] = ["master", *start, *own, "--", job]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.exits: list[tuple[str, int]] = []
        """Name and exit code of each process that has ended."""
        self._below: dict[int, psutil.Process] = {}
        self._logs: list[IO[bytes]] = []
        self._log_starts: dict[str, int] = {}
        """Size of the log at the start of the newest process."""

    def __enter__(self) -> Standbys:
        for name in self._commands:
            self._start(name)
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.processes:
            self._note(name)
        for process in self.processes.values():
            process.kill()
            process.wait()
        for below in self._below.values():
            try:
                below.kill()
            except psutil.NoSuchProcess:
                continue
        for log in self._logs:
            log.close()

    def _link(self, name: str, kind: str) -> Path:
        """Return the path at which a master reaches a storage folder. It is a link."""
        link = self.folder / f"{kind}-{name}"
        if not link.is_symlink():
            (self.folder / kind).mkdir(exist_ok=True)
            link.symlink_to(self.folder / kind)
        return link

    def cut(self, name: str, *kinds: str) -> None:
        """Cut a master off from storage folders. The tasks of its job are cut off from its checkpoints, too."""
        for kind in kinds:
            self._point(name, kind, self.folder / "program.py" / kind)

    def heal(self, name: str) -> None:
        """Connect a master with all storage folders again."""
        for kind in PLACES.values():
            self._point(name, kind, self.folder / kind)

    def _point(self, name: str, kind: str, target: Path) -> None:
        new = self.folder / f"{kind}-{name}.new"
        new.symlink_to(target)
        new.replace(self.folder / f"{kind}-{name}")

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]['rest.port']}"

    def get(self, name: str, path: str) -> httpx.Response:
        return httpx.get(f"{self.url(name)}{path}", timeout=10)

    def leader(self) -> str:
        """Return the name of the master that leads according to storage, or an empty string."""
        election = self.folder / "ha" / self.job_id / FOLDER
        terms = (
            sorted(int(file.name) for file in election.glob("*") if file.name.isdecimal()) if election.is_dir() else []
        )
        if not terms:
            return ""
        holder = msgspec.json.decode((election / str(terms[-1])).read_bytes(), type=Holder)
        pid = int(holder.id.split("/")[1])
        return next((name for name in MASTERS if self.processes[name].pid == pid), "")

    def wait_for_leader(self, patience_s: float, other_than: str = "") -> str:
        deadline = time.monotonic() + patience_s
        while (leader := self.leader()) in ("", other_than):
            assert time.monotonic() < deadline, f"no leader within {patience_s} s\n{self.describe()}"
            self.restart_ended()
            time.sleep(0.02)
        return leader

    def restart_ended(self) -> None:
        """Start each process again that has ended with a failure."""
        for name, process in list(self.processes.items()):
            code = process.poll()
            if code not in (None, 0):
                self.exits.append((name, code))
                self._start(name)

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL. It is not started again until `restart_ended`."""
        self._note(name)
        self.processes[name].kill()
        self.processes[name].wait()

    def terminate(self, name: str) -> None:
        """Send SIGTERM to a process. It is started again after its end, by `restart_ended`."""
        self._note(name)
        self.processes[name].terminate()

    def stop(self, name: str) -> None:
        """Stop a process and the processes below it with SIGSTOP, like a frozen machine."""
        self._signal(name, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        self._note(name)
        for found in self._tree(name):
            with suppress(ProcessLookupError):
                os.kill(found.pid, number)

    def _note(self, name: str) -> None:
        """Remember the processes below a process, because the kernel gives them another parent after its end."""
        self._below |= {p.pid: p for p in self._tree(name)[1:]}

    def _tree(self, name: str) -> list[psutil.Process]:
        """Return the process and the processes below it. The list is empty if the process has ended."""
        if self.processes[name].poll() is not None:
            return []
        try:
            process = psutil.Process(self.processes[name].pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _start(self, name: str) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self._log_starts[name] = log.tell()
        self._logs.append(log)
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *self._commands[name]],
            cwd=self.folder,
            env={
                **os.environ,
                **self._environment,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "runtime"), str(ROOT)]),
                "PENSTOCK_CONF_DIR": str(self.folder),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def executors(self, of: str = "") -> list[psutil.Process]:
        """Return the executors below the workers. `of` is the master whose driver has them. By default, return those of both masters."""
        port = f":{self.ports[of]['spark.driver.port']}" if of else ""
        found = []
        for process in (process for name in self.workers for process in self._tree(name)[1:]):
            with suppress(psutil.NoSuchProcess, ValueError):
                command = process.cmdline()
                if command[command.index("--driver-url") + 1].endswith(port):
                    found.append(process)
        return found

    def add_worker(self) -> None:
        """Start another worker."""
        name = f"worker-{len(self.workers) + 1}"
        self.workers.append(name)
        self._commands[name] = self._worker
        self._start(name)

    def log(self, name: str) -> str:
        """Return what the newest process of this name has logged."""
        return (self.folder / f"{name}.log").read_bytes()[self._log_starts[name] :].decode(errors="replace")

    @property
    def warm_executors(self) -> int:
        """Return the number of executors that the standby has prepared."""
        leader = self.leader()
        return sum(self.log(name).count(" is warm") for name in MASTERS if name != leader)

    def describe(self) -> str:
        names = (*MASTERS, *self.workers)
        return "\n".join(f"== {n}\n{(self.folder / f'{n}.log').read_text(errors='replace')[-5_000:]}" for n in names)
