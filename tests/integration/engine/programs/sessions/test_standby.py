"""A session cluster with a standby master: the leader is killed, and the programs continue on the standby."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.engine.programs.sessions.session_programs import ENDLESS, counts_are_right, numbers
from tests.session_process import RUNTIME

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOKEN = "t" * 48
WAIT_S = 120.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Masters:
    """Two masters of a session, and a worker with two slots."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        for name, content in (("secret", "f" * 64), ("token", TOKEN)):
            (folder / name).touch(0o600)
            (folder / name).write_text(content)
        (folder / "penstock.yaml").write_text(f"security.spark.secret-file: {folder}/secret\n")
        self._ports = [(free_port(), free_port()) for _ in range(2)]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.http = [
            httpx.Client(base_url=f"http://localhost:{rest}", headers=headers, timeout=60) for _, rest in self._ports
        ]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(RUNTIME), "PENSTOCK_CONF_DIR": str(self._folder)}
        with (self._folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "penstock.cli", *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self._folder)
        self._processes.append(process)
        return process

    def start(self, number: int) -> subprocess.Popen[bytes]:
        rpc, rest = self._ports[number]
        settings = {
            "high-availability.type": "file",
            "high-availability.storageDir": f"{self._folder}/storage",
            "security.rest.token-file": f"{self._folder}/token",
            "jobmanager.rpc.port": rpc,
            "rest.port": rest,
        }
        return self._start("session", *(part for key, value in settings.items() for part in ("-D", f"{key}={value}")))

    def start_worker(self) -> None:
        addresses = ",".join(f"localhost:{rpc}" for rpc, _ in self._ports)
        self._start("worker", "--master", addresses, "--slots", "2")

    def wait_until(self, is_true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_true():
            assert time.monotonic() < deadline, f"{what}: {(self._folder / 'log').read_text()[-5000:]}"
            time.sleep(0.1)

    def get(self, number: int, path: str) -> Any:
        """Return the response of a master, or an empty text if it does not respond with the status 200."""
        try:
            answer = self.http[number].get(path)
        except httpx.TransportError:
            return ""
        if answer.status_code != 200:
            return ""
        return answer.json() if answer.headers["content-type"] == "application/json" else answer.text

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def masters(tmp_path: Path) -> Iterator[Masters]:
    found = Masters(tmp_path)
    yield found
    found.stop()


def test_a_program_continues_on_the_standby_after_the_leader_was_killed(masters: Masters) -> None:
    leader = masters.start(0)
    masters.start_worker()
    masters.wait_until(lambda: (masters.get(0, "/overview") or {}).get("slots-total") == 2, "slots")
    masters.start(1)
    uploaded = masters.http[0].post("/jars/upload", files={"jarfile": ("endless.py", ENDLESS)}).json()["filename"]
    started = masters.http[0].post(f"{uploaded}/run", json={"programArgsList": ["standby"]})
    job_id = started.json()["jobid"]
    masters.wait_until(lambda: "checkpoint 3 is complete" in masters.get(0, f"/jobs/{job_id}/log"), "a checkpoint")
    masters.wait_until(lambda: masters.get(1, f"/jobs/{job_id}/status") == {"status": "RUNNING"}, "the standby's proxy")
    leader.kill()
    masters.wait_until(lambda: len(masters.get(1, f"/jobs/{job_id}/output").splitlines()) > 50, "records")
    lines = masters.get(1, f"/jobs/{job_id}/output").splitlines()
    assert min(numbers(lines)) > 0, "it continues from a checkpoint"
    assert counts_are_right(lines)
