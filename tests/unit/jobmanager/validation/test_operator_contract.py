"""The contract between the Kubernetes operator and a master, and the storage, with a real master and a job in this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from penstock.common.configuration import Configuration
from penstock.jobmanager.process.master import master_cluster, master_process
from penstock.jobmanager.process.master.master_process import run_master_process
from penstock.jobmanager.process.session.entry import run_script_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock_operator.api.limits.own_identity import OwnIdentity
from penstock_operator.engine.account import Progress
from penstock_operator.engine.client import HttpEngine
from penstock_operator.errors import EngineError
from penstock_operator.reconcile.observe import terminations
from penstock_operator.storage.penstock import PenstockStorages
from tests.in_process import InProcess
from tests.unit.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from penstock_operator.engine.account import Request

T = TypeVar("T")

PROGRAM = """
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
sink = FileSink.for_row_format(OUTPUT, JsonLinesEncoder()).build()
numbers = env.from_source(DataGeneratorSource(int, 10**9, 200.0, splits=4), WatermarkStrategy.no_watermarks(), "numbers")
numbers.uid("in").key_by(lambda n: n % 8).reduce(lambda a, b: a + b).uid("sums").sink_to(sink).uid("out")
env.execute("endless")
"""


class Master:
    """A master's process in a thread, and the operator's client for it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.script = folder / "job.py"
        self.script.write_text(PROGRAM.replace("OUTPUT", repr(f"file://{folder}/output")))
        self.job_id = uuid.uuid4().hex
        (folder / "token").write_text("a-token")
        self.settings = {
            "rest.port": str(port),
            "rest.bind-address": "127.0.0.1",
            "security.rest.token-file": f"{folder}/token",
            "parallelism.default": "2",
            "penstock.epoch.target": "20 ms",
            "execution.shutdown-on-application-finish": "false",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.dir": f"file://{folder}/checkpoints",
            "execution.checkpointing.savepoint-dir": f"file://{folder}/savepoints",
        }
        self.url = f"http://127.0.0.1:{port}"
        self.codes: list[int] = []
        self.stop_requested = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        def program(session: Session) -> None:
            run_script_on(session, str(self.script), [], self.settings)

        submit = SubmitOptions(job_id=self.job_id, fresh=True, keep_result=True)
        self.codes.append(
            run_master_process(InProcess(), submit, Configuration(self.settings), program, self.stop_requested)
        )

    def ask(self, question: Callable[[HttpEngine], Awaitable[T]]) -> T:
        async def request() -> T:
            async with httpx.AsyncClient() as http:
                return await question(HttpEngine(http, self.url, "a-token"))

        return asyncio.run(request())

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                if condition():
                    return
            except EngineError:
                pass  # it does not exist yet
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def completed(self, kind: Any, request: str) -> Request:
        self.wait_for(lambda: self.ask(lambda e: e.request(self.job_id, kind, request)).state != "InProgress")
        return self.ask(lambda e: e.request(self.job_id, kind, request))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    """Start a master, and wait for a complete checkpoint."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    found = Master(tmp_path, port)
    found.wait_for(lambda: found.ask(lambda e: e.checkpoints(found.job_id)).completed)
    yield found
    found.stop_requested.set()
    found.thread.join(20)
    root.handlers[:] = handlers
    root.setLevel(level)


def storage(master: Master) -> Any:
    spec = SimpleNamespace(configuration={}, storage=SimpleNamespace(checkpoints=f"file://{master.folder}/checkpoints"))
    return PenstockStorages(own_identity=OwnIdentity(("file:///",)))(spec, {})  # type: ignore[arg-type]


def test_the_operator_reads_which_job_runs_and_its_status(master: Master) -> None:
    (job,) = master.ask(lambda e: e.jobs())
    assert (job.id, job.state) == (master.job_id, "RUNNING")
    assert master.ask(lambda e: e.parallelism(master.job_id)) == 2
    assert master.ask(lambda e: e.slots()) == 64
    assert master.ask(lambda e: e.progress(master.job_id)) == Progress()
    assert master.ask(lambda e: e.exception(master.job_id)) == ""
    points = master.ask(lambda e: e.checkpoints(master.job_id))
    assert points.latest_path is not None
    assert points.latest_path.startswith(f"file://{master.folder}/checkpoints/{master.job_id}/chk-")
    overview = master.ask(lambda e: e.overview(master.job_id))
    assert overview is not None
    assert (overview.job.id, overview.job.state, overview.job.parallelism) == (master.job_id, "RUNNING", 2)
    assert (overview.progress, overview.exception) == (Progress(), "")
    assert overview.checkpoints.completed >= points.completed
    assert overview.checkpoints.latest_at is not None
    assert str(overview.checkpoints.latest_path).rpartition("/")[0] == points.latest_path.rpartition("/")[0]
    assert master.ask(lambda e: e.overview("0" * 32)) is None
    newest = asyncio.run(storage(master).newest_complete(f"file://{master.folder}/checkpoints", master.job_id))
    assert newest.job_id == master.job_id
    assert not newest.torn


def test_a_savepoint_with_an_id_is_taken_once_and_found_in_its_folder(master: Master) -> None:
    folder, trigger = f"file://{master.folder}/elsewhere/one", "a" * 32
    for _ in range(2):
        assert master.ask(lambda e: e.savepoint(master.job_id, folder, trigger)) == trigger
    done = master.completed("savepoint", trigger)
    assert done.state == "Completed", done
    (found,) = asyncio.run(storage(master).savepoints(folder))
    assert found.path.rstrip("/") == str(done.location).rstrip("/")
    assert asyncio.run(storage(master).verify(found.path)).ok


def test_a_checkpoint_is_taken_and_unknown_requests_are_not_found(master: Master) -> None:
    trigger = "b" * 32
    master.ask(lambda e: e.checkpoint(master.job_id, trigger))
    assert master.completed("checkpoint", trigger).state == "Completed"
    assert master.ask(lambda e: e.request(master.job_id, "checkpoint", "c" * 32)).state == "Unknown"


def test_a_rescale_is_done_when_the_job_runs_with_the_new_parallelism(master: Master) -> None:
    trigger = "d" * 32
    master.ask(lambda e: e.rescale(master.job_id, 3, trigger))
    assert master.completed("rescale", trigger).state == "Completed"
    assert master.ask(lambda e: e.parallelism(master.job_id)) == 3
    assert master.ask(lambda e: e.jobs())[0].state == "RUNNING"
    progress = master.ask(lambda e: e.progress(master.job_id))
    assert progress.restarts == 0, "a rescale is no restart"
    assert progress.rescaled is not None
    assert progress.rescaled.parallelism == 3
    assert timedelta(0) <= progress.rescaled.took < timedelta(minutes=1)


def test_a_stop_with_a_savepoint_leaves_a_master_that_reports_it(master: Master) -> None:
    folder, trigger = f"file://{master.folder}/elsewhere/two", "e" * 32
    master.ask(lambda e: e.stop(master.job_id, folder, trigger))
    done = master.completed("stop", trigger)
    assert done.state == "Completed", done
    master.wait_for(lambda: master.ask(lambda e: e.jobs())[0].state == "FINISHED")
    (found,) = asyncio.run(storage(master).savepoints(folder))
    assert asyncio.run(storage(master).verify(found.path)).ok
    assert master.thread.is_alive()
    overview = master.ask(lambda e: e.overview(master.job_id))
    assert overview is not None
    assert not overview.end_of_input, "somebody has stopped it"
    with pytest.raises(EngineError) as refused:
        master.ask(lambda e: e.stop(master.job_id, folder, "f" * 32))
    assert refused.value.status == 409
    master.stop_requested.set()
    master.thread.join(20)
    assert master.codes == [0]


# --- exit codes -----------------------------------------------------------------------------------------------------


def test_the_operator_knows_the_exit_codes_of_a_master() -> None:
    assert terminations.EXIT_STORAGE == master_process.EXIT_STORAGE
    assert terminations.EXIT_FENCED == master_process.EXIT_FENCED


class Begun(InProcess):
    """A runner with slots in this process, for the real `penstock master`."""

    def __init__(self, settings: Configuration) -> None:
        super().__init__()

    def begin(self, entry: str = "") -> None:
        """Start nothing."""


def penstock_master(monkeypatch: pytest.MonkeyPatch, folder: Path, *way: str, checkpoints: str) -> int:
    """Run the command with a real program and real storage, without Spark, and return its exit code."""
    monkeypatch.setattr(master_cluster, "MasterClusterProvider", Begun)
    (folder / "secret").write_text("0123456789abcdef" * 4)
    script = folder / "job.py"
    script.write_text(PROGRAM.replace("OUTPUT", repr(f"file://{folder}/output")))
    settings = {
        "rest.port": "-1",
        "security.spark.secret-file": f"{folder}/secret",
        "execution.checkpointing.dir": checkpoints,
        "execution.checkpointing.interval": "100 ms",
    }
    defined = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    return Terminal({})("master", "--entry", str(script), *way, "--job-id", uuid.uuid4().hex, *defined).code


@pytest.mark.parametrize("way", ["--fresh", "--restore-latest"])
def test_a_master_that_storage_refuses_reports_it_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    refused = f"file://{tmp_path}/file/checkpoints"
    assert penstock_master(monkeypatch, tmp_path, way, checkpoints=refused) == terminations.EXIT_STORAGE


def test_a_master_whose_snapshot_is_missing_does_not_blame_storage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    absent = f"file://{tmp_path}/savepoint-1"
    assert (
        penstock_master(monkeypatch, tmp_path, "--restore", absent, checkpoints=f"file://{tmp_path}/checkpoints") == 1
    )
