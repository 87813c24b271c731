"""A deployed master and worker, each as a separate process, and their program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO

import psutil
import yaml

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


class Deployed:
    """The processes of a deployment. Its `with` block kills the remaining processes at the end."""

    def __init__(self, folder: Path, settings: dict[str, str], plan: Plan, output: str, job_id: str) -> None:
        self._folder = folder
        (folder / "penstock.yaml").write_text(yaml.safe_dump(settings))
        (folder / "program.py").write_text(PROGRAM)
        job = json.dumps({"plan": asdict(plan), "output": output})
        self._logs: list[IO[bytes]] = []
        self._master = ["master", "--entry", "program.py", "--job-id", job_id]
        self._job = job
        self._commands = {
            "master": [*self._master, "--fresh", "--", job],
            "worker": [
                "worker",
                "--master",
                f"{settings['jobmanager.rpc.address']}:{settings['jobmanager.rpc.port']}",
                "--slots",
                "2",
            ],
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Deployed:
        for role, command in self._commands.items():
            self._start(role, command)
        return self

    def _start(self, role: str, command: list[str]) -> None:
        path = os.pathsep.join([str(ROOT / "runtime"), str(ROOT)])
        log = (self._folder / f"{role}.log").open("ab")
        self._logs.append(log)
        self.processes[role] = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *command],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": path, "PENSTOCK_CONF_DIR": str(self._folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def another_master(self) -> None:
        """Kill the master, and start another one that continues the job."""
        self.processes["master"].kill()
        self.processes["master"].wait()
        self._start("master", [*self._master, "--restore-latest", "--", self._job])

    def __exit__(self, *error: object) -> None:
        below = [
            process
            for started in self.processes.values()
            if started.poll() is None
            for process in psutil.Process(started.pid).children(recursive=True)
        ]
        for started in self.processes.values():
            started.kill()
            started.wait()
        for process in below:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for log in self._logs:
            log.close()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values()]

    def describe(self) -> str:
        return "\n".join((self._folder / f"{role}.log").read_text(errors="replace")[-6_000:] for role in self.processes)
