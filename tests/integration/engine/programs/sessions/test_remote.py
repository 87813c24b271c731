"""Programs of `create_remote_environment` on a session cluster, each as a separate process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RUNTIME = Path(__file__).parents[5] / "runtime"

MODULE = """
from dataclasses import dataclass


@dataclass
class Reading:
    sensor: str
    value: float


def doubled(reading):
    return Reading(reading.sensor, reading.value * 2)
"""

PROGRAM = """
import sys
from typing import NamedTuple

import readings
from penstock.common import Configuration, Types
from penstock.common.errors import PenstockError
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.functions.accumulators import LongCounter


class Count(NamedTuple):
    sensor: str
    number: int
    value: float


class Counts(KeyedProcessFunction):
    def open(self, ctx):
        self.number = ctx.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.seen = LongCounter()
        ctx.add_accumulator("seen", self.seen)

    def process_element(self, reading, ctx):
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        self.seen.add(1)
        yield Count(reading.sensor, number, reading.value)


def environment(**settings):
    configuration = Configuration({key.replace("__", "."): value for key, value in settings.items()})
    return StreamExecutionEnvironment.create_remote_environment("localhost", int(sys.argv[1]), configuration).set_parallelism(2)


env = environment()
given = [readings.Reading(f"s{n % 3}", float(n)) for n in range(300)]
counts = env.from_collection(given, readings.Reading).map(readings.doubled).key_by(lambda r: r.sensor).process(Counts())
with counts.execute_and_collect() as found:
    values = sorted(found)
assert type(values[0]) is Count
assert [value[:2] for value in values] == sorted((f"s{n % 3}", n // 3 + 1) for n in range(300))
assert sorted(value.value for value in values) == [2.0 * n for n in range(300)]
print("collected")

env = environment()
numbers = env.from_source(DataGeneratorSource(int, None, 500.0), None, "numbers")
assert len(set(numbers.execute_and_collect(limit=5))) == 5
print("limited")

env = environment()
env.from_collection(given, readings.Reading).key_by(lambda r: r.sensor).process(Counts()).print()
result = env.execute("printed there")
assert result.get_accumulator_result("seen") == 300, result
print("executed")

env = environment(execution__checkpointing__dir=sys.argv[2], execution__checkpointing__interval="500 ms")
source = DataGeneratorSource(lambda n: readings.Reading(f"s{n % 3}", float(n)), None, 200.0)
env.from_source(source, None, "endless").key_by(lambda r: r.sensor).process(Counts()).print()
client = env.execute_async("endless")
savepoint = client.trigger_savepoint(sys.argv[2]).result(60)
assert "savepoint-" in savepoint, savepoint
assert client.rescale(1).result(60) == 1
client.cancel().result(60)
assert client.get_job_status().result(60).name == "CANCELED"
print("savepoint, rescale, cancel")

env = environment()
env.from_collection([1, 0]).map(lambda n: 1 // n).name("divides").print()
try:
    env.execute("fails")
except PenstockError as error:
    assert error.code == "USER_FUNCTION" and error.operator == "divides" and "program.py" in error.location, error
    print("failed")

env = environment(python__files="readings.py")
env.from_collection([1]).print()
try:
    env.execute("with files")
except PenstockError as error:
    assert "which a remote cluster cannot read" in str(error), error
    print("refused")
"""


def started(folder: Path, *arguments: str, **variables: str) -> tuple[subprocess.Popen[bytes], Path]:
    log = folder / f"{arguments[0]}.log"
    environment = {**os.environ, "PYTHONPATH": str(RUNTIME), "PYTHONUNBUFFERED": "1", **variables}
    with log.open("wb") as out:
        command = [sys.executable, "-m", "penstock.cli", *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT), log


def ended(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def address(process: subprocess.Popen[bytes], log: Path) -> tuple[int, Path]:
    """Return the port, and the file of the token."""
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r"at http://localhost:(\d+)\nexport PENSTOCK_TOKEN_FILE=(\S+)\n", log.read_text())
        if found:
            return int(found[1]), Path(found[2])
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    process, log = started(tmp_path, "session", "--local", "-D", "rest.port=0")
    try:
        port, token = address(process, log)
        yield port, token
    finally:
        code = ended(process)
    assert code == 0, log.read_text()
    assert not token.exists()


def ran(folder: Path, port: int, token: Path) -> str:
    (folder / "readings.py").write_text(MODULE)
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(RUNTIME), "PENSTOCK_TOKEN_FILE": str(token)}
    command = [sys.executable, "program.py", str(port), folder.as_uri()]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ALL = ["collected", "limited", "executed", "savepoint, rescale, cancel", "failed", "refused"]


def test_a_program_runs_on_a_session_of_this_machine(session: tuple[int, Path], tmp_path: Path) -> None:
    port, token = session
    assert ran(tmp_path, port, token).splitlines() == ALL
    url = f"http://localhost:{port}"
    assert httpx.post(f"{url}/programs", content=b"x").status_code == 401
    headers = {"Authorization": f"Bearer {token.read_text()}"}
    answer = httpx.post(f"{url}/programs", content=b"x", headers=headers)
    assert answer.status_code == 400
    assert "comes from Penstock ?" in answer.text
    evil = httpx.post(f"{url}/programs", content=b"x", headers={**headers, "Origin": "http://evil.example"})
    assert evil.status_code == 403
    assert httpx.get(f"{url}/programs/{'0' * 32}", headers=headers).status_code == 404
    assert httpx.delete(f"{url}/cluster", headers=headers).is_success


def test_a_program_runs_on_workers_that_register(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("f" * 64)
    (tmp_path / "penstock.yaml").write_text(
        f"security.spark.secret-file: {secret}\njobmanager.rpc.port: 17977\nrest.port: 0\n"
    )
    process, log = started(tmp_path, "session", PENSTOCK_CONF_DIR=str(tmp_path))
    worker = None
    try:
        port, token = address(process, log)
        worker, _ = started(
            tmp_path, "worker", "--master", "localhost:17977", "--slots", "2", PENSTOCK_CONF_DIR=str(tmp_path)
        )
        assert ran(tmp_path, port, token).splitlines() == ALL
        assert "the driver restarts" not in log.read_text()
    finally:
        assert ended(process) == 0, log.read_text()
        if worker is not None:
            ended(worker)
