"""A job refuses to start from a snapshot that is missing, incomplete, damaged or of another job, before it changes anything."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import SnapshotNotFound
from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.launch import check, run_script
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.in_process import PATIENCE_S, InProcess, environment, run, started, until
from tests.integration.engine.programs.refusals import Remembers, nothing_touched, refused
from tests.integration.engine.selfcheck.job import CheckSequence, Numbers, Plan, build, checked, key_of

PLAN = Plan(per_key=5_000, rate=2_000)
"""A plan that takes 50 s, so that every fault happens before the end of the job."""


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """Return the folder of a savepoint of the self-verifying job, with state in all of its operators."""
    env = environment(tmp_path / "first").set_parallelism(2)
    build(env, PLAN, str(tmp_path / "first-output"))
    master = started(env)
    until(lambda: has_state(master, "check") and has_state(master, "sums"), master)
    operation = master.request(Operation("stop"))
    assert master.wait(PATIENCE_S) is JobStatus.FINISHED
    assert operation.location is not None, operation.failure
    return Path(operation.location.removeprefix("file://"))


def has_state(master: JobMaster, uid: str) -> bool:
    """Return whether the newest checkpoint has state of the operator."""
    latest = master.checkpoints.coordinator.latest
    handles = [] if latest is None else latest.states[uid].keyed
    return any(file["entries"] for handle in handles for file in handle["files"])


def again(folder: Path, program: Callable[[StreamExecutionEnvironment, str], object] | None = None) -> Any:
    """Return the environment of the self-verifying job or another program, to start in `folder`."""
    env = environment(folder).set_parallelism(2)
    output = str(folder / "output")
    if program is None:
        build(env, PLAN, output)
    else:
        program(env, output)
    return env


def test_a_missing_savepoint_is_refused(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/savepoints/savepoint-abcdef-0123456789ab"
    refusal = refused(again(tmp_path), SubmitOptions(restore_path=path))
    assert refusal.code == "SNAPSHOT_NOT_FOUND"
    assert "savepoint-abcdef-0123456789ab" in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


def test_a_savepoint_without_its_manifest_is_refused(tmp_path: Path, savepoint: Path) -> None:
    (savepoint / "_metadata").unlink()
    refusal = refused(again(tmp_path / "second"), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert refusal.code in ("SNAPSHOT_TORN", "SNAPSHOT_NOT_FOUND")
    assert savepoint.name in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path / "second")


def test_a_folder_that_is_not_a_savepoint_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "_metadata").write_bytes(b"\x00\x01 some other system's file")
    refusal = refused(again(tmp_path), SubmitOptions(restore_path=f"file://{folder}"))
    assert refusal.code in ("STATE_FORMAT_UNSUPPORTED", "SNAPSHOT_TORN", "RESTORE_REFUSED")
    assert "foreign" in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


def test_a_missing_state_file_is_reported(tmp_path: Path, savepoint: Path) -> None:
    victim = _state_file(savepoint)
    victim.unlink()
    refusal = refused(again(tmp_path / "second"), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert "SNAPSHOT_TORN" in refusal.text
    assert victim.name in refusal.message
    assert "restore another" in refusal.text
    assert nothing_touched(tmp_path / "second")


def test_a_damaged_state_file_is_found_by_its_checksum(tmp_path: Path, savepoint: Path) -> None:
    victim = _state_file(savepoint)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.chmod(0o644)
    victim.write_bytes(content)
    refusal = refused(again(tmp_path / "second"), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert "CORRUPT_STATE_FILE" in refusal.text
    assert victim.name in refusal.message
    assert "restore an earlier checkpoint" in refusal.text


def _state_file(savepoint: Path) -> Path:
    files = [Path(f, name) for f, _, names in os.walk(savepoint) for name in names if name != "_metadata"]
    return max(files, key=lambda file: file.stat().st_size)


def test_a_removed_operator_is_refused_then_allowed_by_its_uid(tmp_path: Path, savepoint: Path) -> None:
    def without_windows(env: StreamExecutionEnvironment, output: str) -> None:
        checked(env, dataclasses.replace(PLAN, rate=None)).print()

    path = f"file://{savepoint}"
    refusal = refused(again(tmp_path / "second", without_windows), SubmitOptions(restore_path=path))
    assert refusal.code == "RESTORE_REFUSED"
    assert "'sums'" in refusal.message
    assert "sums" in refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path / "second")
    allowed = SubmitOptions(restore_path=path, allow_non_restored=["sums", "numbers-sink", "windows-sink"])
    assert run(again(tmp_path / "third", without_windows), allowed).history.status is JobStatus.FINISHED


def test_a_savepoint_of_another_job_is_refused(tmp_path: Path, savepoint: Path) -> None:
    def another(env: StreamExecutionEnvironment, output: str) -> None:
        env.from_collection([1]).uid("in").key_by(str).process(Remembers()).uid("mine").print().uid("out")

    refusal = refused(again(tmp_path / "second", another), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert refusal.code == "RESTORE_REFUSED"
    assert "nothing matches" in refusal.message
    assert "'mine'" in refusal.message
    assert "uid" in refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path / "second")


class AnotherType(CheckSequence):
    """The same states, one of them with another type."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))


def with_another_type(env: StreamExecutionEnvironment, output: str) -> None:
    numbers = env.from_source(
        DataGeneratorSource(Numbers(PLAN), PLAN.total, PLAN.rate, splits=PLAN.splits),
        WatermarkStrategy.no_watermarks(),
        "numbers",
    ).uid("numbers")
    numbers.key_by(key_of).process(AnotherType(PLAN)).name("check").uid("check").print()


def main() -> None:
    """Build the program for `penstock check`."""
    env = environment(Path(sys.argv[1]))
    with_another_type(env, sys.argv[1])
    env.execute("another type")


GONE = ["sums", "numbers-sink", "windows-sink"]


def test_a_state_of_another_type_is_refused_before_the_start(tmp_path: Path, savepoint: Path) -> None:
    allowed = SubmitOptions(restore_path=f"file://{savepoint}", allow_non_restored=GONE)
    refusal = refused(again(tmp_path / "second", with_another_type), allowed)
    assert refusal.code == "STATE_SCHEMA_INCOMPATIBLE"
    assert refusal.operator == "check"
    assert "'last'" in refusal.message
    assert "was int and is str" in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path / "second")


def test_a_state_of_another_type_is_found_by_penstock_check(tmp_path: Path, savepoint: Path) -> None:
    result = check(
        entry=f"{__name__}:main",
        args=[str(tmp_path / "second")],
        parallelism=2,
        against=f"file://{savepoint}",
        configuration={},
        allow_non_restored_state=GONE,
    )
    (problem,) = result["problems"]
    assert (problem["code"], problem["operator"]) == ("STATE_SCHEMA_INCOMPATIBLE", "check")
    assert "was int and is str" in problem["message"]


def test_another_graph_does_not_stop_the_running_master(tmp_path: Path) -> None:
    """Start a master of the same job id whose program does not fit the checkpoints. It must not take over."""

    def another(folder: Path) -> StreamExecutionEnvironment:
        env = environment(folder)
        env.from_collection([1]).uid("in").key_by(str).process(Remembers()).uid("mine").print().uid("out")
        return env

    job_id = "ab" * 16
    master = started(again(tmp_path), SubmitOptions(job_id=job_id))
    coordinator = master.checkpoints.coordinator
    until(lambda: coordinator.latest is not None, master)
    refusal = refused(another(tmp_path), SubmitOptions(job_id=job_id))
    assert refusal.code == "RESTORE_REFUSED"
    assert not refusal.was_accepted
    assert coordinator.latest is not None
    before = coordinator.latest.checkpoint_id
    until(lambda: coordinator.latest is not None and coordinator.latest.checkpoint_id != before, master)
    master.request(Operation("cancel"))
    assert master.wait(PATIENCE_S) is JobStatus.CANCELED


def test_the_command_line_does_not_report_a_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobmanager.process.session.embedded.LocalClusterProvider", InProcess)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    submitted: list[str] = []

    def run_with(savepoint: str | None) -> None:
        run_script(
            script=str(script),
            args=[],
            parallelism=None,
            savepoint_path=savepoint,
            allow_non_restored_state=[],
            configuration={"rest.port": "-1", "execution.checkpointing.dir": f"file://{tmp_path}/checkpoints"},
            on_submitted=lambda job_id, name, url: submitted.append(name),
        )

    with pytest.raises(SnapshotNotFound):
        run_with(f"file://{tmp_path}/nowhere")
    assert submitted == []
    run_with(None)
    assert submitted == ["ones"]


SCRIPT = """
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).add_sink(lambda value: None)
env.execute_async("ones").get_job_execution_result().result()
"""


def test_a_damaged_checkpoint_is_named_and_the_previous_one_is_offered(tmp_path: Path) -> None:
    settings = {"execution.checkpointing.num-retained": "3", "state.backend.type": "rocksdb"}
    job_id = "0123456789abcdef0123456789abcdef"

    def start() -> StreamExecutionEnvironment:
        env = environment(tmp_path, **settings).set_parallelism(2)
        build(env, PLAN, str(tmp_path / "output"))
        return env

    master = started(start(), SubmitOptions(job_id=job_id))
    history = master.checkpoints.coordinator.history
    until(lambda: history.overview()["counts"]["completed"] >= 3, master)
    master.request(Operation("cancel"))
    assert master.wait(PATIENCE_S) is JobStatus.CANCELED
    root = tmp_path / "checkpoints" / job_id
    kept = sorted(int(path.name.removeprefix("chk-")) for path in root.glob("chk-*"))
    assert len(kept) >= 2
    older = {file["path"] for n in kept[:-1] for file in _files_of(root / f"chk-{n}")}
    newest = {file["path"] for file in _files_of(root / f"chk-{kept[-1]}")}
    victim = root / min(newest - older)
    victim.chmod(0o644)
    victim.write_bytes(bytes(len(victim.read_bytes())))
    refusal = refused(start(), SubmitOptions(job_id=job_id))
    assert refusal.code == "CORRUPT_STATE_FILE"
    assert victim.name in refusal.message
    assert refusal.message.endswith(f"The job was restored from {(root / f'chk-{kept[-1]}').as_uri()}")
    assert f"chk-{kept[-2]}" in refusal.remedy
    assert f"chk-{kept[-1]}" not in refusal.remedy


def _files_of(checkpoint: Path) -> list[dict[str, Any]]:
    manifest = json.loads((checkpoint / "_metadata").read_text())
    return [file for state in manifest["states"].values() for handle in state["keyed"] for file in handle["files"]]
