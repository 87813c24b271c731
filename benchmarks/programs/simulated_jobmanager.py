"""A JobManager with simulated tasks: the cost of an epoch, a checkpoint, a restore and a status request by slots.

    python simulated_jobmanager.py --slots 256 [--epochs 30] [--checkpoints 8]

JobMaster, EpochLoop, CheckpointCoordinator, metrics and REST's facts are real, and the storage is a folder. The job has
four levels: a source and three keyed operators with state, each behind an exchange. The simulated responses are those of one
real slot of the same job, with the number of each slot. The cost excludes the creation of these responses.
Commands are encoded and responses decoded for every slot and level, like over the control channel.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.process_tree import memory
from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.program import Program
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.master.master_process import collect_rarely
from penstock.jobmanager.process.session.dispatcher import Dispatcher
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.runners.in_process import InProcessRunner
from penstock.jobmanager.runners.runner import Attempt
from penstock.metrics.prometheus import exposition
from penstock.state.key_groups import key_group_range
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    SnapshotAck,
    SnapshotCommand,
    decode_ack,
    encode_ack,
    encode_command,
)
from penstock.taskmanager.worker import ManualClock

KEYED_LEVELS = 3
MAX_PARALLELISM = 1024
INTERVAL_MS = 10_000


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: int, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.inc()
        yield value


def program(parallelism: int, folder: str) -> Program:
    configuration = Configuration()
    configuration.set(options.CHECKPOINT_DIRECTORY, folder).set(options.MAX_PARALLELISM, MAX_PARALLELISM)
    configuration.set(options.PARALLELISM, parallelism).set(options.EPOCH_TARGET, timedelta(milliseconds=20))
    configuration.set(options.CHECKPOINT_INTERVAL, timedelta(milliseconds=INTERVAL_MS))
    env = StreamExecutionEnvironment(configuration)
    source = DataGeneratorSource(lambda index: index % 1000, records_per_second=1000)
    stream: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    for level in range(KEYED_LEVELS):
        stream = stream.key_by(lambda value: value).process(Counting()).uid(f"counts-{level}")
    stream.sink_to(Discarding())
    return env.get_program()


class Discarding(Sink):
    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return Nothing()


class Nothing(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None: ...


class Recorded(InProcessRunner):
    """A runner that keeps the responses of the tasks."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(1, clock)
        self.acks: list[list[LevelAck]] = []

    def run_epoch(self, commands: list[EpochCommand], *more: Any) -> list[LevelAck]:
        acks = super().run_epoch(commands, *more)
        self.acks.append(acks)
        return acks


class SimulatedRunner:
    """A runner that responds for every slot and level like a recorded slot.

    Args:
        answers: responses of one slot, one for each level: of an epoch, and of an epoch with a snapshot.
    """

    name = "simulated"
    streaming = False
    spark = None

    def __init__(self, slots: int, answers: list[LevelAck], snapshots: dict[int, list[SnapshotAck]]) -> None:
        self._slots = slots
        self._answers = answers
        self._snapshots = snapshots
        self._attempt: Attempt | None = None
        self._splits: dict[int, dict[str, list[str]]] = {}
        self.task_settings: dict[str, str] = {}
        self.on_wait: Any = None
        self.task_managers = [f"worker-{slot // 8}" for slot in range(slots)]
        self.simulating_s = 0.0
        """CPU time of the simulation, which is not the JobManager's."""
        self.sent_bytes = 0

    def available_slots(self) -> int:
        return self._slots

    slot_limit: int | None = None

    @property
    def can_add_slots(self) -> bool:
        return False

    def expects_returning_slots(self) -> bool:
        return False

    def ensure_slots(self, count: int) -> None: ...

    def place(self, count: int) -> None: ...

    def start(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._splits = {}

    def run_epoch(self, commands: list[EpochCommand], *_: Any) -> list[LevelAck]:
        self.sent_bytes = sum(len(encode_command(command)) for command in commands)
        began = time.thread_time()
        frames = [frame for slot, command in enumerate(commands) for frame in self._frames(slot, command)]
        self.simulating_s += time.thread_time() - began
        return [decode_ack(frame) for frame in frames]

    def _frames(self, slot: int, command: EpochCommand) -> list[bytes]:
        for uid, assigned in command.assignments.items():
            self._splits.setdefault(slot, {}).setdefault(uid, []).extend(split.id for split in assigned)
        frames = []
        for answer in self._answers:
            ack = msgspec.structs.replace(answer, slot=slot, attempt=command.attempt, epoch=command.epoch, snapshots=[])
            ack.sources = {
                uid: msgspec.structs.replace(
                    progress, positions=dict.fromkeys(self._splits.get(slot, {}).get(uid, ()), command.epoch)
                )
                for uid, progress in answer.sources.items()
            }
            if command.snapshot is not None:
                taken = command.snapshot
                ack.snapshots = [self._of_slot(one, slot, taken) for one in self._snapshots.get(answer.level, ())]
            frames.append(encode_ack(ack))
        return frames

    def _of_slot(self, snapshot: SnapshotAck, slot: int, taken: SnapshotCommand) -> SnapshotAck:
        keyed = snapshot.keyed
        if keyed is not None:
            groups = key_group_range(slot, self._slots, MAX_PARALLELISM)
            files = [{**file, "path": f"shared/{uuid.uuid4()}", "key_groups": list(groups)} for file in keyed["files"]]
            for file in files:
                path = Path(taken.root.removeprefix("file://"), file["path"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(file["size"]))
            keyed = {**keyed, "key_groups": list(groups), "files": files}
        return msgspec.structs.replace(snapshot, subtask=slot, checkpoint_id=taken.checkpoint_id, keyed=keyed)

    def take_news(self) -> list[SnapshotAck]:
        return []

    def unanswered(self) -> list[tuple[int, int]]:
        return []

    def request_barrier(self) -> None: ...

    def cancel(self) -> None: ...

    def end_attempt(self) -> None: ...

    def close(self) -> None: ...


def recorded(folder: str) -> tuple[list[LevelAck], dict[int, list[SnapshotAck]]]:
    """Return the responses of one real slot: to an epoch with records, and to the snapshot after it."""
    clock = ManualClock(1_000_000)
    runner = Recorded(clock)
    master = master_of(program(1, folder), clock).attach(runner)
    master.open()
    loop = master.begin_attempt()
    master.step(loop)
    clock.set(clock.now_ms() + 500)
    master.step(loop)
    answers = sorted(runner.acks[-1], key=lambda ack: ack.level)
    clock.set(clock.now_ms() + INTERVAL_MS)
    found: dict[int, list[SnapshotAck]] = {}
    while sum(map(len, found.values())) < len(master.graph.operators):
        master.step(loop)
        time.sleep(0.01)
        for ack in runner.acks[-1]:
            found.setdefault(ack.level, []).extend(ack.snapshots)
    runner.close()
    return answers, found


def master_of(of: Program, clock: ManualClock) -> JobMaster:
    return JobMaster(of, uuid.uuid4().hex, JobSettings.from_configuration(of.configuration), clock)


def measure(slots: int, epochs: int, checkpoints: int, folder: Path) -> dict[str, float]:
    """Measure CPU times in ms."""
    clock = ManualClock(1_000_000)
    runner = SimulatedRunner(slots, *recorded((folder / "template").as_uri()))
    collect_rarely()
    before_mb = memory_mb()
    dispatcher = Dispatcher()
    store = dispatcher.metric_store
    master = master_of(program(slots, (folder / "checkpoints").as_uri()), clock).attach(runner, store)  # type: ignore[arg-type]
    dispatcher.add(master)
    gateway = DispatcherGateway(dispatcher, {}, list, lambda: None)
    master.open()
    result: dict[str, float] = {}
    loop = timed(result, "start_ms", runner, lambda: master.begin_attempt())
    master.step(loop)

    def run_epochs() -> None:
        for _ in range(epochs):
            clock.set(clock.now_ms() + 100)
            master.step(loop)

    def run_checkpoints() -> None:
        for _ in range(checkpoints):
            clock.set(clock.now_ms() + INTERVAL_MS)
            master.step(loop)
            while master.checkpoints.coordinator.is_in_progress:
                loop._handle_events()
                time.sleep(0.001)

    run_checkpoints()
    timed(result, "epoch_ms", runner, run_epochs, epochs)
    timed(result, "checkpoint_ms", runner, run_checkpoints, checkpoints)
    result["checkpoint_ms"] -= result["epoch_ms"]
    timed(result, "rest_ms", runner, lambda: gateway.job(master.job_id))
    timed(result, "prometheus_ms", runner, lambda: exposition(store.collect()))
    latest = master.checkpoints.coordinator.latest
    assert latest is not None
    manifest = next((folder / "checkpoints").rglob(f"chk-{latest.checkpoint_id}/_metadata"))
    result["manifest_bytes"] = manifest.stat().st_size
    result["memory_mb"] = memory_mb() - before_mb
    master.discard_attempt("to be restored")
    timed(result, "restore_ms", runner, lambda: master.step(master.begin_attempt()))
    result["restore_command_bytes"] = runner.sent_bytes
    return result


def memory_mb() -> float:
    return memory(os.getpid()) / 2**20


def timed(result: dict[str, float], name: str, runner: SimulatedRunner, work: Any, times: int = 1) -> Any:
    """Measure the CPU time of the whole process except the simulation, in ms per repetition."""
    simulated, began = runner.simulating_s, time.process_time()
    answer = work()
    used = time.process_time() - began - (runner.simulating_s - simulated)
    result[name] = used * 1e3 / times
    return answer


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--slots", type=int, required=True)
    arguments.add_argument("--epochs", type=int, default=30)
    arguments.add_argument("--checkpoints", type=int, default=8)
    options_ = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-benchmark-jobmanager-"))
    begin = time.time()
    try:
        found = measure(options_.slots, options_.epochs, options_.checkpoints, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("RESULT " + json.dumps({"begin": begin, "end": time.time(), **found}), flush=True)


if __name__ == "__main__":
    main()
