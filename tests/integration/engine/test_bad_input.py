"""A job that cannot be built or started fails before it touches anything, and says who must do what about it.

These run in one process: what refuses them stands in front of every cluster.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock.common.configuration import Configuration
from penstock.common.errors import PenstockError, SnapshotNotFound
from penstock.common.executor import executing_on
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.in_process import InProcessRunner
from penstock.jobmanager.launch import run_script
from penstock.jobmanager.session import Session, SubmitOptions
from tests.integration.engine.selfcheck.job import Plan, build

HERE = __file__
PLAN = Plan(per_key=50, rate=None)


class InProcess:
    """Slots in this process."""

    def __init__(self, slots: int = 8) -> None:
        self.slots = slots

    def runner_for(self, slots: int, levels: int, settings: Any, *, bounded: bool) -> InProcessRunner:
        return InProcessRunner(self.slots)

    def available_slots(self) -> int:
        return self.slots

    def stop(self) -> None: ...


class Refused:
    """What a program was refused with."""

    def __init__(self, error: PenstockError, *, was_accepted: bool = False) -> None:
        self.was_accepted = was_accepted
        """Somebody was told that the job runs."""
        self.code = error.code
        self.message = error.message
        self.operator = error.operator
        self.location = error.location
        self.remedy = error.remedy
        self.told = str(error)


def environment(folder: Path, **settings: str) -> StreamExecutionEnvironment:
    conf = Configuration()
    for key, value in {
        "rest.port": "-1",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.savepoint-dir": f"file://{folder}/savepoints",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **settings,
    }.items():
        conf.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(conf)


def refused(
    env: StreamExecutionEnvironment, submit: SubmitOptions | None = None, *, slots: int = 8, slot_timeout_s: float = 300
) -> Refused:
    """Run a program that must not run. The restart strategy is the default one: it must not be tried again either."""
    session = Session(InProcess(slots), submit)
    session.on_started = lambda master: setattr(master.options, "slot_timeout_s", slot_timeout_s)
    accepted: list[object] = []
    session.on_accepted = accepted.append
    with executing_on(session), pytest.raises(PenstockError) as caught:
        env.execute("bad")
    return Refused(caught.value, was_accepted=bool(accepted))


def run(env: StreamExecutionEnvironment, submit: SubmitOptions | None = None) -> Any:
    """Run a program to its end; its JobMaster."""
    session = Session(InProcess(), submit)
    with executing_on(session):
        env.execute("good")
    return session.dispatcher.jobs()[0]


def points_here(refusal: Refused) -> bool:
    """Whether the location is a line of this file."""
    file, _, line = refusal.location.rpartition(":")
    return file == HERE and line.isdigit()


def nothing_touched(folder: Path) -> bool:
    """No file: neither a checkpoint nor a claim to lead nor a record."""
    written = [path for where in ("checkpoints", "output") for path in (folder / where).rglob("*") if path.is_file()]
    return not written


class Remembers(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        yield value


class RemembersTwice(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))
        self.all = runtime_context.get_list_state(ListStateDescriptor("seen", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


# --- the program ----------------------------------------------------------------------------------------------------


def test_no_sink(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1, 2]).map(str)
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "no sink" in refusal.message
    assert "sink_to" in refusal.remedy
    assert nothing_touched(tmp_path)


def test_a_uid_used_twice(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).map(str).name("first").uid("same").map(str).name("second").uid("same").print()
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "'same'" in refusal.message
    assert "'first'" in refusal.message
    assert refusal.operator == "second"
    assert points_here(refusal)
    assert "uid of its own" in refusal.remedy
    assert nothing_touched(tmp_path)


def test_keyed_state_without_key_by(tmp_path: Path) -> None:
    env = environment(tmp_path)
    with pytest.raises(PenstockError) as caught:
        env.from_collection([1]).process(Remembers())  # type: ignore[arg-type]
    refusal = Refused(caught.value)
    assert refusal.code == "KEYED_STATE_NOT_AVAILABLE"
    assert "Remembers" in refusal.message
    assert "key_by" in refusal.remedy
    assert points_here(refusal)
    assert nothing_touched(tmp_path)


def test_keyed_state_in_a_map_without_key_by(tmp_path: Path) -> None:
    from penstock.datastream.functions import MapFunction

    class Counts(MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

        def map(self, value: Any) -> Any:
            return value

    env = environment(tmp_path)
    env.from_collection([1]).map(Counts()).name("counts").print()
    refusal = refused(env)
    assert "KEYED_STATE_NOT_AVAILABLE" in refusal.told
    assert refusal.operator == "counts"
    assert points_here(refusal)
    assert "key_by" in refusal.told


def test_a_state_name_used_twice(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).key_by(str).process(RemembersTwice()).name("twice").print()
    refusal = refused(env)
    assert "STATE_NAME_CONFLICT" in refusal.told
    assert "'seen'" in refusal.message
    assert refusal.operator == "twice"
    assert points_here(refusal)


class Opaque:
    """Nothing says how it could be stored."""


class KeepsOpaque(KeyedProcessFunction):
    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def open(self, runtime_context: Any) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", self.declared))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.kept.update(Opaque())
        yield value


@pytest.mark.parametrize("declared", [Opaque, None])
def test_a_type_without_encoding(tmp_path: Path, declared: Any) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).key_by(str).process(KeepsOpaque(declared)).name("keeps").print()
    refusal = refused(env)
    assert refusal.code == "STATE_TYPE"
    assert "'kept'" in refusal.message
    assert "Opaque" in refusal.message
    assert refusal.operator == "keeps"
    assert points_here(refusal)
    assert "dataclass" in refusal.remedy
    assert not any(tmp_path.rglob("_metadata"))


def test_a_function_that_cannot_travel(tmp_path: Path) -> None:
    lock = threading.Lock()
    env = environment(tmp_path)
    env.from_collection([1]).map(lambda value: (lock, value)).name("locks").print()
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "lock" in refusal.message
    assert refusal.operator == "locks"
    assert points_here(refusal)
    assert "`open`" in refusal.remedy


def test_an_error_of_the_users_code_ends_with_his_frames_and_nothing_else(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"restart-strategy.type": "none"})
    env.from_collection([1]).map(lambda value: value // 0).name("divides").print()
    refusal = refused(env)
    assert refusal.code == "USER_FUNCTION"
    assert refusal.told.count("USER_FUNCTION") == 1
    assert "record 0" in refusal.message
    assert refusal.operator == "divides"
    assert points_here(refusal)
    assert refusal.told.rstrip().endswith("ZeroDivisionError: integer division or modulo by zero")


@pytest.mark.parametrize(
    ("key", "value", "choices"),
    [
        ("state.backend.type", "redis", "hashmap, rocksdb"),
        ("high-availability.type", "zookeeper", "kubernetes"),
        ("execution.checkpointing.interval", "soon", "10s"),
    ],
)
def test_a_setting_that_makes_no_sense(tmp_path: Path, key: str, value: str, choices: str) -> None:
    with pytest.raises(PenstockError) as caught:
        environment(tmp_path, **{key: value})
    refusal = Refused(caught.value)
    assert refusal.code == "INVALID_JOB"
    assert f"{key} is set to '{value}'" in refusal.message
    assert choices in refusal.message
    assert nothing_touched(tmp_path)


def test_checkpoint_storage_that_cannot_be_written(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.dir": "file:///proc/nowhere"})
    env.from_collection([1]).print()
    refusal = refused(env)
    assert refusal.code == "STORAGE"
    assert "file:///proc/nowhere" in refusal.message
    assert "execution.checkpointing.dir" in refusal.message
    assert refusal.remedy


class LooksAndThenWrites(MemoryFileSystem):
    """A store whose driver knows no conditional put."""

    protocol = "looksandwrites"
    store: dict[str, Any] = {}
    pseudo_dirs: list[str] = [""]


def test_a_store_without_conditional_writes_in_ha_mode(tmp_path: Path) -> None:
    fsspec.register_implementation("looksandwrites", LooksAndThenWrites, clobber=True)
    settings = {"execution.checkpointing.dir": "looksandwrites://checkpoints", "high-availability.type": "file"}
    env = environment(tmp_path, **settings)
    env.from_collection([1]).print()
    refusal = refused(env)
    assert refusal.code == "CONDITIONAL_WRITES_UNSUPPORTED"
    assert "looksandwrites://checkpoints" in refusal.message
    assert "If-None-Match" in refusal.remedy
    assert not [path for path in LooksAndThenWrites.store if "chk-" in path]


def test_parallelism_above_the_max_parallelism(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.set_max_parallelism(4)
    stream = env.from_collection([1]).key_by(str).process(Remembers()).name("wide")
    stream.set_parallelism(5).print()
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "parallelism 5" in refusal.message
    assert "4" in refusal.message
    assert refusal.operator == "wide"
    assert points_here(refusal)
    assert refusal.remedy
    assert nothing_touched(tmp_path)


def test_too_few_slots(tmp_path: Path) -> None:
    env = environment(tmp_path)
    build(env.set_parallelism(3), PLAN, str(tmp_path / "output"))
    refusal = refused(env, slots=2, slot_timeout_s=0.3)
    assert refusal.code == "NOT_ENOUGH_SLOTS"
    assert "needs 3 slots, the cluster has 2" in refusal.message
    assert "lower the parallelism" in refusal.remedy
    assert nothing_touched(tmp_path)


# --- what it starts from --------------------------------------------------------------------------------------------


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """The folder of a savepoint of the self-verifying job."""
    from penstock.jobmanager.requests import Operation

    env = environment(tmp_path / "first")
    build(env.set_parallelism(2), dataclasses.replace(PLAN, rate=2_000), str(tmp_path / "first-output"))
    session = Session(InProcess())
    with executing_on(session):
        env.execute_async("first")
    master = session.dispatcher.jobs()[0]
    while master.history.status.value != "RUNNING":
        time.sleep(0.01)
    operation = master.request(Operation("stop"))
    assert operation.wait(60)
    assert operation.location is not None, operation.failure
    master.wait(30)
    return Path(operation.location.removeprefix("file://"))


def again(folder: Path, change: Callable[[StreamExecutionEnvironment, str], object] | None = None) -> Any:
    env = environment(folder).set_parallelism(2)
    output = str(folder / "output")
    if change is None:
        build(env, dataclasses.replace(PLAN, rate=2_000), output)
    else:
        change(env, output)
    return env


def test_a_savepoint_that_does_not_exist(tmp_path: Path) -> None:
    path = f"file://{tmp_path}/savepoints/savepoint-abcdef-0123456789ab"
    refusal = refused(again(tmp_path), SubmitOptions(restore_path=path))
    assert refusal.code == "SNAPSHOT_NOT_FOUND"
    assert "savepoint-abcdef-0123456789ab" in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


def test_a_savepoint_without_its_manifest(tmp_path: Path, savepoint: Path) -> None:
    (savepoint / "_metadata").unlink()
    refusal = refused(again(tmp_path / "second"), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert refusal.code in ("SNAPSHOT_TORN", "SNAPSHOT_NOT_FOUND")
    assert savepoint.name in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path / "second")


def test_something_else_than_a_savepoint(tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "_metadata").write_bytes(b"\x00\x01 some other system's file")
    refusal = refused(again(tmp_path), SubmitOptions(restore_path=f"file://{folder}"))
    assert refusal.code in ("STATE_FORMAT_UNSUPPORTED", "SNAPSHOT_TORN", "RESTORE_REFUSED")
    assert "foreign" in refusal.message
    assert refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


def test_a_state_file_that_is_missing(tmp_path: Path, savepoint: Path) -> None:
    victim = _state_file(savepoint)
    victim.unlink()
    refusal = refused(again(tmp_path / "second"), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert "SNAPSHOT_TORN" in refusal.told
    assert victim.name in refusal.message
    assert "restore another" in refusal.told
    assert nothing_touched(tmp_path / "second")


def test_a_state_file_that_is_damaged_is_found_by_its_checksum(tmp_path: Path, savepoint: Path) -> None:
    victim = _state_file(savepoint)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.chmod(0o644)
    victim.write_bytes(content)
    refusal = refused(again(tmp_path / "second"), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert "CORRUPT_STATE_FILE" in refusal.told
    assert victim.name in refusal.message
    assert "restore an earlier checkpoint" in refusal.told


def _state_file(savepoint: Path) -> Path:
    files = [Path(f, name) for f, _, names in os.walk(savepoint) for name in names if name != "_metadata"]
    return max(files, key=lambda file: file.stat().st_size)


def test_a_removed_operator_is_refused_then_allowed_by_its_uid(tmp_path: Path, savepoint: Path) -> None:
    from tests.integration.engine.selfcheck.job import checked

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
    assert run(again(tmp_path / "third", without_windows), allowed).history.status.value == "FINISHED"


def test_a_savepoint_of_another_job(tmp_path: Path, savepoint: Path) -> None:
    def another(env: StreamExecutionEnvironment, output: str) -> None:
        env.from_collection([1]).uid("in").key_by(str).process(Remembers()).uid("mine").print().uid("out")

    refusal = refused(again(tmp_path / "second", another), SubmitOptions(restore_path=f"file://{savepoint}"))
    assert refusal.code == "RESTORE_REFUSED"
    assert "nothing matches" in refusal.message
    assert "'mine'" in refusal.message
    assert "uid" in refusal.remedy
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path / "second")


def test_another_graph_does_not_stop_the_master_that_runs(tmp_path: Path) -> None:
    """A master of the same job id whose program does not fit the checkpoints must not take over first."""

    def another(folder: Path) -> StreamExecutionEnvironment:
        env = environment(folder)
        env.from_collection([1]).uid("in").key_by(str).process(Remembers()).uid("mine").print().uid("out")
        return env

    job_id = "ab" * 16
    session = Session(InProcess(), SubmitOptions(job_id=job_id))
    with executing_on(session):
        again(tmp_path).execute_async("runs")
    master = session.dispatcher.jobs()[0]
    while master.checkpoints.coordinator.latest is None:
        time.sleep(0.01)
    refusal = refused(another(tmp_path), SubmitOptions(job_id=job_id))
    assert refusal.code == "RESTORE_REFUSED"
    assert not refusal.was_accepted
    before = master.checkpoints.coordinator.latest.checkpoint_id
    while master.checkpoints.coordinator.latest.checkpoint_id == before:
        assert not master.is_done, master.error
        time.sleep(0.01)
    session.stop()


def test_the_command_line_does_not_say_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobmanager.embedded.LocalClusterProvider", InProcess)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    told: list[str] = []

    def run_with(savepoint: str | None) -> None:
        run_script(
            script=str(script),
            args=[],
            parallelism=None,
            savepoint_path=savepoint,
            allow_non_restored_state=[],
            configuration={"rest.port": "-1", "execution.checkpointing.dir": f"file://{tmp_path}/checkpoints"},
            on_submitted=lambda job_id, name, url: told.append(name),
        )

    with pytest.raises(SnapshotNotFound):
        run_with(f"file://{tmp_path}/nowhere")
    assert told == []
    run_with(None)
    assert told == ["ones"]


SCRIPT = """
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).add_sink(lambda value: None)
env.execute_async("ones").get_job_execution_result().result()
"""


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_offered(tmp_path: Path) -> None:
    from penstock.jobmanager.requests import Operation

    settings = {"execution.checkpointing.num-retained": "3", "state.backend.type": "rocksdb"}
    job_id = "0123456789abcdef0123456789abcdef"

    def start() -> StreamExecutionEnvironment:
        env = environment(tmp_path, **settings).set_parallelism(2)
        build(env, dataclasses.replace(PLAN, per_key=5_000, rate=1_000), str(tmp_path / "output"))
        return env

    session = Session(InProcess(), SubmitOptions(job_id=job_id))
    with executing_on(session):
        start().execute_async("first")
    master = session.dispatcher.jobs()[0]
    history = master.checkpoints.coordinator.history
    while history.overview()["counts"]["completed"] < 3:
        assert not master.is_done
        time.sleep(0.01)
    master.request(Operation("cancel"))
    assert master.wait(60).value == "CANCELED"
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
    assert f"chk-{kept[-2]}" in refusal.remedy
    assert f"chk-{kept[-1]}" not in refusal.remedy


def _files_of(checkpoint: Path) -> list[dict[str, Any]]:
    manifest = json.loads((checkpoint / "_metadata").read_text())
    return [file for state in manifest["states"].values() for handle in state["keyed"] for file in handle["files"]]


# --- the input ------------------------------------------------------------------------------------------------------


def test_an_input_that_is_not_there(tmp_path: Path) -> None:
    env = environment(tmp_path)
    source = FileSource.for_record_stream_format(JsonLinesFormat(), f"file://{tmp_path}/nowhere").build()
    env.from_source(source, None, "readings").print()
    refusal = refused(env)
    assert refusal.code == "SOURCE"
    assert "nowhere" in refusal.message
    assert refusal.operator == "readings"
    assert points_here(refusal)
    assert refusal.remedy
    assert nothing_touched(tmp_path)


def test_malformed_lines_that_are_to_go_to_the_side_output(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "readings.jsonl").write_text('{"id": 1}\n{"id": \nnothing\n{"id": 4}\n')
    env = environment(tmp_path)
    source = FileSource.for_record_stream_format(
        JsonLinesFormat(on_error="side-output"), f"file://{tmp_path}/in"
    ).build()
    readings = env.from_source(source, None, "readings")
    rejected = readings.get_side_output(OutputTag("malformed-records")).map(lambda r: (r.line, r.record))
    good = readings.map(lambda value: (0, value["id"]))
    with executing_on(Session(InProcess())), good.union(rejected).execute_and_collect() as found:
        lines = sorted(found, key=str)
    assert [line for line, _ in lines] == [0, 0, 2, 3]
    assert len({text for line, text in lines if line}) == 2


def test_a_malformed_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "readings.jsonl").write_text('{"id": 1}\n{"id": 2}\n{"id": \n{"id": 4}\n')
    env = environment(tmp_path, **{"restart-strategy.type": "none"})
    source = FileSource.for_record_stream_format(JsonLinesFormat(), f"file://{tmp_path}/in").build()
    env.from_source(source, None, "readings").print()
    refusal = refused(env)
    assert "RECORD_FORMAT" in refusal.told
    assert "readings.jsonl" in refusal.message
    assert '{"id":' in refusal.message
    assert refusal.operator == "readings"
