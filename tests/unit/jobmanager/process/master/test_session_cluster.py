"""Programs that a session cluster accepts, and the results that it keeps."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pyspark import cloudpickle

from penstock import __version__
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError, InvalidJob
from penstock.jobmanager.cluster.spark_cluster import free_port
from penstock.jobmanager.process.election.joining import join
from penstock.jobmanager.process.master.session_cluster import (
    _for_jobs,
    _with_token,
    check_elected,
    run_session_cluster,
)
from penstock.jobmanager.process.programs.process import remote_programs
from penstock.jobmanager.process.programs.process.remote_programs import _Collected
from penstock.jobmanager.process.programs.process.shipping import PYTHON, own_modules, shipped, unpacked
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.rest.errors import Conflict


def test_functions_of_the_programs_modules_are_pickled_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_the_program.py").write_text("FACTOR = 3\n\ndef tripled(n):\n    return n * FACTOR\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import of_the_program  # type: ignore[import-not-found]

    assert of_the_program in own_modules()
    content = shipped(of_the_program.tripled)
    monkeypatch.delitem(sys.modules, "of_the_program")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert unpacked(content, __version__, PYTHON, __version__)(2) == 6
    assert not cloudpickle.cloudpickle.list_registry_pickle_by_value()


def test_packages_do_not_count_as_modules_of_the_program() -> None:
    names = {module.__name__ for module in own_modules()}
    assert not {"pytest", "json", "pyspark", "penstock", "__main__"} & names


@pytest.mark.parametrize(("penstock", "python"), [("0.0.1", PYTHON), (__version__, "2.7"), ("", "")])
def test_programs_of_other_versions_are_refused(penstock: str, python: str) -> None:
    with pytest.raises(InvalidJob, match=r"comes from Penstock .* but this cluster has"):
        unpacked(shipped(1), penstock, python, __version__)


def test_an_invalid_program_or_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidJob, match="the request has no program"):
        unpacked(b"\x80garbage", __version__, PYTHON, __version__)
    package = types.ModuleType("not_there")
    package.function = eval("lambda: 1")  # type: ignore[attr-defined]
    package.function.__module__, package.function.__qualname__ = "not_there", "function"
    package.function.__name__ = "function"
    monkeypatch.setitem(sys.modules, "not_there", package)
    content = shipped(package.function)
    monkeypatch.delitem(sys.modules, "not_there")
    with pytest.raises(InvalidJob, match="needs the module 'not_there'"):
        unpacked(content, __version__, PYTHON, __version__)


def test_a_program_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(InvalidJob, match="cannot be sent: TypeError"):
        shipped(threading.Lock())


def test_records_are_kept_until_later_ones_are_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_programs, "WAIT_S", 0.01)
    collected = _Collected()
    collected.master = types.SimpleNamespace(is_done=False)  # type: ignore[assignment]
    collected.put("", [b"a", b"b"])
    first = collected.since(0)
    assert first == {"values": ["YQ==", "Yg=="], "is-done": False}
    assert collected.since(0) == first  # a lost answer is repeated
    assert collected.since(1)["values"] == ["Yg=="]
    for number in (0, 3):
        with pytest.raises(Conflict, match=f"the request asks for record {number}, but records 1 to 2 are available"):
            collected.since(number)
    assert collected.since(2)["values"] == []
    assert not collected.is_taken.is_set()
    collected.put("", [b"c"])
    collected.master.is_done = True
    assert collected.since(2) == {"values": ["Yw=="], "is-done": True}
    assert collected.is_taken.is_set()


def test_records_of_a_job_that_is_not_yet_accepted_are_not_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_programs, "WAIT_S", 0.01)
    assert _Collected().since(0) == {"values": [], "is-done": False}


def test_large_records_arrive_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_programs, "AT_ONCE_BYTES", 3)
    collected = _Collected()
    collected.master = types.SimpleNamespace(is_done=True)  # type: ignore[assignment]
    collected.put("", [b"aa", b"bb", b"cc"])
    parts = [collected.since(0), collected.since(2)]
    assert [len(part["values"]) for part in parts] == [2, 1]
    assert [part["is-done"] for part in parts] == [False, True]


def test_a_client_without_a_token_is_refused() -> None:
    with _with_token(Configuration({"rest.port": "0"})) as (settings, _):
        file = Path(settings.to_dict()["security.rest.token-file"])
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        assert len(file.read_text()) > 30
    assert not file.exists()


def test_a_session_without_rest_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"rest\.port is -1"):
        run_session_cluster(LocalClusterProvider(), Configuration({"rest.port": "-1"}))


def test_jobs_do_not_change_the_clusters_own_rest_settings() -> None:
    given = {"rest.port": "1", "security.rest.token-file": "/t", "jobmanager.rpc.port": "2", "s3.endpoint": "e"}
    assert _for_jobs(given) == {"s3.endpoint": "e"}


def test_a_second_session_cluster_is_on_standby_until_the_first_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("s3cret")
    headers = {"Authorization": "Bearer s3cret"}
    started: list[str] = []
    monkeypatch.setattr(ProgramRunner, "start", lambda self: started.append(threading.current_thread().name))
    stops = {name: threading.Event() for name in ("first", "second")}
    ports = {name: free_port() for name in stops}
    threads = []

    def answer(name: str) -> int:
        try:
            return httpx.get(f"http://127.0.0.1:{ports[name]}/overview", headers=headers, timeout=30).status_code
        except httpx.ConnectError:
            return 0

    def start(name: str) -> None:
        settings = Configuration(
            {
                "high-availability.type": "file",
                "high-availability.storageDir": str(tmp_path / "ha"),
                "rest.port": str(ports[name]),
                "rest.bind-address": "127.0.0.1",
                "security.rest.token-file": str(tmp_path / "token"),
            }
        )
        member = join(settings, "session", "127.0.0.1")
        arguments = (LocalClusterProvider(), settings, stops[name], member)
        threads.append(threading.Thread(target=run_session_cluster, args=arguments, name=name, daemon=True))
        threads[-1].start()
        eventually(lambda: answer(name) == 200)

    start("first")
    start("second")
    assert started == ["first"]
    stops["first"].set()
    eventually(lambda: started == ["first", "second"])
    eventually(lambda: answer("second") == 200)
    stops["second"].set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"security.rest.token-file": "/t"}, "high-availability.storageDir"),
        ({"high-availability.storageDir": "/ha"}, "security.rest.token-file"),
    ],
)
def test_a_session_with_standbys_needs_common_storage_and_a_common_token(
    settings: dict[str, str], missing: str
) -> None:
    elected = {"high-availability.type": "kubernetes", **settings}
    with pytest.raises(ClusterError, match=f"but {missing} is not") as caught:
        check_elected(Configuration(elected))
    assert caught.value.remedy
