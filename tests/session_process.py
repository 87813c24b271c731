"""A session cluster in a separate process, with a client of its REST API."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

RUNTIME = Path(__file__).parents[1] / "runtime"
WAIT_S = 60.0


@dataclass
class SessionProcess:
    """A session cluster in a separate process."""

    folder: Path
    process: subprocess.Popen[str] | None = None
    http: httpx.Client = field(default_factory=httpx.Client)
    url: str = ""
    token: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of the cluster."""

    def start(self) -> None:
        settings = {
            "rest.port": "0",
            "high-availability.storageDir": f"{self.folder}/programs",
            "execution.checkpointing.savepoint-dir": f"{self.folder}/savepoints",
            **self.settings,
        }
        command = [sys.executable, "-m", "penstock.cli", "session", "--local"]
        for key, value in settings.items():
            command += ["-D", f"{key}={value}"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(RUNTIME),
            "PENSTOCK_CACHE": os.environ.get("PENSTOCK_CACHE", ""),
            "SESSION_FOLDER": str(self.folder),
        }
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=self.folder)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if (match := re.match(r"Session cluster at (\S+)", line)) is not None:
                self.url = match[1]
            if (match := re.match(r"export PENSTOCK_TOKEN_FILE=(\S+)", line)) is not None:
                self.token = Path(match[1]).read_text()
                break
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=120)

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.http.close()

    def upload(self, name: str, content: bytes | str) -> str:
        answer = self.http.post("/jars/upload", files={"jarfile": (name, content)})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["filename"]).rsplit("/", 1)[1]

    def run(self, program: str, *args: str, **body: Any) -> str:
        answer = self.http.post(f"/jars/{program}/run", json={"programArgsList": list(args), **body})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["jobid"])

    def state(self, job_id: str) -> str:
        return str(self.http.get(f"/jobs/{job_id}/status").json().get("status", "unknown"))

    def output(self, job_id: str) -> list[str]:
        return self.http.get(f"/jobs/{job_id}/output").text.splitlines()

    def wait_until(self, is_true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_true():
            assert time.monotonic() < deadline, f"{what}: {self.http.get('/jobs/overview').text}"
            time.sleep(0.05)

    def wait_for(self, job_id: str, state: str) -> None:
        self.wait_until(lambda: self.state(job_id) == state, f"job {job_id} is {state}")

    def processes(self) -> set[psutil.Process]:
        """Return the processes of programs, also those whose parent has ended."""
        assert self.process is not None
        servers = [child.pid for child in psutil.Process(self.process.pid).children()]
        found = set()
        for process in psutil.process_iter():
            try:
                is_forked = "process.fork_server" in " ".join(process.cmdline()) and process.pid not in servers
                if is_forked and process.environ().get("SESSION_FOLDER") == str(self.folder):
                    found.add(process)
            except psutil.Error:
                continue
        return found
