"""A Python daemon that is warm when Spark requests it.

A Python process replaces the JVM, and starts daemons as Spark does.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyspark.daemon
import pytest

from penstock.jobmanager.cluster import python_daemon
from penstock.jobmanager.cluster.python_daemon import LONGEST_PATH, WARM, environment_for, start_with_warm_daemon

JVM = """
import json, os, struct, subprocess, sys
def daemon(**environment):
    command = [sys.executable, "-m", "penstock.jobmanager.cluster.python_daemon", "pyspark.worker"]
    made = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}, cwd="/"
    )
    length, = struct.unpack(">i", made.stdout.read(4))
    made.stdout.read(length)
    return made
made = []
for line in sys.stdin:
    for one in made:
        one.stdin.close()
    made.append(daemon(**json.loads(line)))
    print("there", flush=True)
"""


@pytest.fixture
def jvm() -> Any:
    # the paths of pytest are too long for a socket
    folder = Path("/tmp", f"penstock-test-{os.getpid()}-{time.monotonic_ns()}")
    folder.mkdir()
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
    }
    start = partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    process = start_with_warm_daemon([sys.executable, "-c", JVM], environment, str(folder), sys.executable, start)
    yield process
    process.kill()
    process.wait()
    shutil.rmtree(folder)


def ask(jvm: Any, environment: str = "{}") -> None:
    jvm.stdin.write(environment + "\n")
    jvm.stdin.flush()
    assert jvm.stdout.readline() == "there\n"


def daemons(jvm: Any) -> dict[str, list[psutil.Process]]:
    found: dict[str, list[psutil.Process]] = {"warm": [], "cold": [], "cat": []}
    for process in psutil.Process(jvm.pid).children():
        command = [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
        if command:
            found["warm" if "--wait" in command else "cat" if command[0].endswith("cat") else "cold"].append(process)
    return found


def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_first_requested_daemon_is_the_warm_one_and_the_second_is_not(jvm: Any) -> None:
    ask(jvm)
    until(lambda: {kind: len(there) for kind, there in daemons(jvm).items()} == {"warm": 1, "cat": 1, "cold": 0})
    [warm] = daemons(jvm)["warm"]
    assert warm.cwd() == "/"
    ask(jvm)  # ends the first daemon by closing its input, as Spark does
    until(lambda: not warm.is_running() or warm.status() == psutil.STATUS_ZOMBIE)
    assert len(daemons(jvm)["cold"]) == 1


def test_a_daemon_with_other_settings_is_not_used(jvm: Any) -> None:
    ask(jvm, '{"PYTHONHASHSEED": "1"}')
    assert len(daemons(jvm)["cold"]) == 1


@pytest.mark.parametrize("used", [True, False])
def test_the_daemon_ends_with_the_jvm(jvm: Any, *, used: bool) -> None:
    if used:
        ask(jvm)
    until(lambda: daemons(jvm)["warm"])
    below = [process for found in daemons(jvm).values() for process in found]
    jvm.kill()
    jvm.wait()
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in below))


def test_no_daemon_starts_without_a_path_for_its_socket(tmp_path: Path) -> None:
    folder = str(tmp_path / ("x" * LONGEST_PATH))
    started = start_with_warm_daemon(["true"], {}, folder, sys.executable, lambda command, env: (command, env))
    assert started == (["true"], {})


def test_a_missing_program_is_reported_as_without_the_daemon(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_with_warm_daemon([str(tmp_path / "java")], dict(os.environ), "/tmp", sys.executable, subprocess.Popen)


@pytest.mark.parametrize(
    ("storage", "loaded"), [("s3://bucket/checkpoints", True), ("file:///checkpoints", False), ("", False)]
)
def test_workers_are_forked_with_the_modules_of_their_storage(storage: str, loaded: bool) -> None:
    code = "import sys; from penstock.jobmanager.cluster import python_daemon; python_daemon._preload(); print('s3fs' in sys.modules)"
    environment = {**os.environ, **environment_for(storage)}
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert result.stdout == f"{loaded}\n"


def test_a_store_that_cannot_be_loaded_does_not_stop_the_daemon() -> None:
    code = "from penstock.jobmanager.cluster import python_daemon; python_daemon._preload()"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PENSTOCK_STORES": "nonsense,s3"})


def test_archives_of_spark_are_not_searched_again(tmp_path: Path) -> None:
    jar = tmp_path / "spark-core_2.13-4.3.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("of_spark.py", "")
    script = """
import importlib, importlib.util, sys, zipimport
from penstock.jobmanager.cluster.python_daemon import without_zips
assert importlib.util.find_spec("of_spark") is not None
without_zips()
importlib.invalidate_caches()
assert importlib.util.find_spec("of_spark") is None
assert not [name for name in (*sys.path, *sys.path_importer_cache, *zipimport._zip_directory_cache) if name.endswith(".jar")]
"""
    path = os.pathsep.join([str(jar), *filter(None, sys.path)])
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, check=True)


def test_the_clusters_secret_is_in_no_environment_of_a_function() -> None:
    """Check `os.environ`, the kernel's view of the process and its children, and the environment that it passes on."""
    code = (
        "import os, sys\n"
        "from penstock.jobmanager.cluster import python_daemon\n"
        "python_daemon.hand_over = lambda path: sys.exit(show())\n"
        "def show():\n"
        "    print(dict(os.environ))\n"
        "    sys.stdout.flush()\n"
        "    if os.fork() == 0:\n"
        "        print(open(f'/proc/{os.getppid()}/environ').read(), open('/proc/self/environ').read(), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "python_daemon.main([])\n"
    )
    environment = {**os.environ, "_SPARK_AUTH_SECRET": "hunter22hunter22", WARM: "/nowhere"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "PATH" in done.stdout, done.stderr
    assert "hunter22" not in done.stdout


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_worker_whose_task_the_jvm_has_closed_ends_without_a_traceback(error: type[OSError]) -> None:
    def flush(*_: object) -> int:
        raise error

    assert python_daemon.without_traceback(flush)("socket", True) == 1
    assert python_daemon.without_traceback(lambda *arguments: len(arguments))("socket", True) == 2


def test_an_error_of_a_worker_remains_an_error() -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        python_daemon.without_traceback(broken)()


def test_the_daemon_forks_workers_without_that_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = pyspark.daemon.worker
    monkeypatch.setitem(vars(pyspark.daemon), "gc", gc)
    monkeypatch.setitem(vars(pyspark.daemon), "worker", worker)
    monkeypatch.setattr(pyspark.daemon, "manager", lambda: None)
    monkeypatch.setattr(python_daemon, "_preload", lambda: None)
    monkeypatch.delenv(python_daemon.WARM, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    python_daemon.main([])
    assert pyspark.daemon.worker is not worker
