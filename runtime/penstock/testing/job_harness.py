"""`JobHarness`: a whole job in one process, without Spark, on a clock that the test moves.

The harness runs a JobMaster on the in-process runner, in steps of the test's thread. Job graph, chaining, exchanges,
epochs, checkpoints, failover and rescaling are those of a cluster. The harness only replaces the external parts: a
journal replaces Kafka, lists replace sinks, and the test moves the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.common.job_status import JobStatus
from penstock.common.time import as_millis
from penstock.common.type_info.type_inference import to_type_info
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.jobmanager.job.requests import Operation
from penstock.records.batch import MIN_TIMESTAMP
from penstock.taskmanager.worker import ManualClock
from penstock.testing.driver import JobDriver
from penstock.testing.journal import Entry, Journal, Kind, encode
from penstock.testing.outputs import HarnessSink, Outputs, Record
from penstock.testing.snapshot import JobSnapshot, SnapshotFolder
from penstock.testing.source import HarnessSource

if TYPE_CHECKING:
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.graph.program import Program

RETAINED = 1_000_000
"""Number of checkpoints to keep, so that every snapshot of a test can be restored."""


class _CrashMark:
    def __repr__(self) -> str:
        return "CRASH"


CRASH = _CrashMark()
"""Mark that lets the job fail over when a source reads it.

It works only once: after the failover, the source ignores the mark.
"""


class JobHarness:
    """A job under test.

    Args:
        parallelism: parallelism of operators that set none.
        max_parallelism: number of key groups.
        configuration: more settings, by key, such as a checkpoint interval on the manual clock.
        backend: `hashmap` or `rocksdb`.
        start_time: initial time of the clock (ms).

    >>> with JobHarness() as harness:
    ...     numbers = harness.source("numbers")
    ...     harness.collect(numbers.map(lambda n: n * 2), "doubled")
    ...     harness.push("numbers", 1, 2, 3)
    ...     harness.outputs("doubled")
    [2, 4, 6]

    The job starts with the first call that needs a running job. Declare sources and outputs before that call. The job processes
    records in the order of the pushes, over all sources.
    """

    def __init__(
        self,
        parallelism: int = 1,
        max_parallelism: int = 128,
        configuration: Mapping[str, Any] | Configuration | None = None,
        *,
        backend: str = "hashmap",
        start_time: int = 0,
    ) -> None:
        settings = Configuration()
        settings.set(options.PARALLELISM, parallelism).set(options.MAX_PARALLELISM, max_parallelism)
        settings.set(options.STATE_BACKEND, backend).set(options.RETAINED_CHECKPOINTS, RETAINED)
        settings.set(options.RESTART_STRATEGY, "none")
        if configuration is not None:
            settings.add_all(configuration)
        self.clock = ManualClock(start_time)
        self._environment = StreamExecutionEnvironment(settings)
        self._journal = Journal()
        self._folder = SnapshotFolder()
        self._driver = JobDriver(self.clock, self._folder.url)
        self._restored: JobSnapshot | None = None  # keeps the snapshot's files, because they may be restored later
        self._program: Program | None = None
        self._splits: dict[str, int] = {}
        self._names: list[str] = []
        self._taken: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Suspend the job. The end of the `with` block calls this method. Snapshots remain valid."""
        self._driver.end(JobStatus.SUSPENDED)
        self._driver.runner.close()

    # --- the program ------------------------------------------------------------------------------------------

    def environment(self) -> StreamExecutionEnvironment:
        """Return the environment, for other sources and for settings. The harness calls `execute` instead of the program."""
        return self._environment

    def source(
        self, name: str, watermarks: WatermarkStrategy | None = None, type_info: Any = None, *, splits: int = 1
    ) -> DataStream:
        """Return a stream of the values that are pushed under this name. Its uid is the name.

        Args:
            watermarks: watermark strategy as for any source. Without one, `push` and `advance_watermark` set event time.
            splits: number of splits, each with a separate watermark. They are distributed over the source's subtasks.
        """
        self._declare(name, list(self._splits), "source")
        if splits < 1:
            raise InvalidJob(
                f"source {name!r} needs at least one split, got {splits}", remedy="set splits to at least 1"
            )
        self._splits[name] = splits
        source = HarnessSource(name, self._journal, splits, to_type_info(type_info))
        return self._environment.from_source(source, watermarks, name, type_info).uid(name)

    def collect(self, stream: DataStream, name: str) -> None:
        """Keep the values of a stream for `outputs`. To collect a side output, pass its stream, `get_side_output(tag)`."""
        self._declare(name, self._names, "output")
        self._names.append(name)
        stream.sink_to(HarnessSink(name)).name(name).uid(_uid_of_output(name))

    def _declare(self, name: str, known: list[str], kind: str) -> None:
        if self._driver.has_started:
            raise InvalidJob(
                f"{kind} {name!r} is declared while the job runs",
                remedy="declare sources and outputs before the first push",
            )
        if name in known:
            raise InvalidJob(f"the {kind} {name!r} already exists", remedy="use another name")

    # --- input ------------------------------------------------------------------------------------------------

    def push(self, source: str, *values: Any, timestamp: int | None = None, split: int = 0) -> None:
        """Push values into a source. `run`, or a call that reads an output, processes them.

        Args:
            values: records, or `CRASH`.
            timestamp: event time of the values (ms). None means no event time, unless the source's strategy assigns one.
        """
        self._check_split(source, split)
        for value in values:
            if value is CRASH:
                self._journal.append(Entry(source, split, Kind.CRASH))
            else:
                self._journal.append(Entry(source, split, Kind.RECORD, encode(value), timestamp))

    def advance_watermark(self, source: str, timestamp: int, *, split: int | None = None) -> None:
        """Move event time of a source to `timestamp` (ms): no earlier record follows.

        Without `split`, all splits of the source move.
        """
        self._check_split(source, split)
        self._journal.append(Entry(source, split, Kind.WATERMARK, timestamp=timestamp))

    def set_idle(self, source: str, *, is_idle: bool = True, split: int | None = None) -> None:
        """Mark a source as idle. An idle source does not hold the event time of the job back."""
        self._check_split(source, split)
        self._journal.append(Entry(source, split, Kind.IDLE if is_idle else Kind.ACTIVE))

    def close(self, source: str) -> None:
        """End the source here, like a bounded source. The job finishes when all sources have ended."""
        self._check_split(source, None)
        self._journal.append(Entry(source, None, Kind.CLOSE))

    def _check_split(self, source: str, split: int | None) -> None:
        if source not in self._splits:
            raise InvalidJob(
                f"source {source!r} does not exist", remedy=f"sources are: {', '.join(self._splits) or 'none'}"
            )
        if split is not None and not 0 <= split < self._splits[source]:
            raise InvalidJob(f"source {source!r} has {self._splits[source]} splits; split {split} does not exist")

    # --- output -----------------------------------------------------------------------------------------------

    def outputs(self, name: str) -> list[Any]:
        """Return the values of an output so far, after all pending work."""
        return [value for value, _ in self.outputs_with_timestamps(name)]

    def outputs_with_timestamps(self, name: str) -> list[Record]:
        """Return the values of `outputs`, each with its event time (ms) or None."""
        self._check_output(name)
        self.run()
        return self._driver.outputs.of(name)

    def _check_output(self, name: str) -> None:
        if name not in self._names:
            raise InvalidJob(
                f"output {name!r} does not exist", remedy=f"outputs are: {', '.join(self._names) or 'none'}"
            )

    def take(self, name: str) -> list[Any]:
        """Return the values since the last `take`."""
        values = self.outputs(name)
        begin, self._taken[name] = min(self._taken.get(name, 0), len(values)), len(values)
        return values[begin:]

    # --- time and progress ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run epochs until no work is left at this time.

        Raises:
            UserFunctionError: the job has failed permanently.
        """
        self._start()
        self._driver.run()

    def advance_processing_time(self, to: int | None = None, by: int | timedelta | None = None) -> None:
        """Move the clock to a time, or by a time (ms).

        The clock stops at each time at which a timer or a checkpoint is due.
        """
        self._start()
        now = self.clock.now_ms()
        self._driver.advance(max(now, to) if to is not None else now + (0 if by is None else as_millis(by)))

    def _start(self) -> None:
        if not self._driver.has_started:
            self._driver.begin(self._build(), self._journal)

    def _build(self) -> Program:
        if self._program is None:
            self._program = self._environment.get_program("job under test")
        return self._program

    # --- snapshots, crashes, rescaling ------------------------------------------------------------------------

    def snapshot(self) -> JobSnapshot:
        """Process the pushed values, then take a checkpoint. A crash restores the last checkpoint."""
        self.run()
        number = self._driver.request(Operation("checkpoint")).result
        master = self._driver.master
        master.parts.commits.drain()
        self.run()
        outputs = self._driver.outputs.all()
        return JobSnapshot(
            master.checkpoints.location(number), outputs, self._journal, self.clock.now_ms(), self._folder
        )

    def crash(self) -> None:
        """Drop all tasks with their state. The job restarts from its last snapshot, or from the beginning.

        Outputs since the snapshot are removed, and sources read the entries since the snapshot again.
        """
        self._start()
        self._driver.restart("the test crashed it")

    def rescale(self, parallelism: int) -> None:
        """Rescale the running job to another parallelism."""
        self.run()
        self._driver.request(Operation("rescale", {"parallelism": parallelism}))
        self.run()

    def restore(
        self,
        snapshot: JobSnapshot,
        parallelism: int | None = None,
        *,
        allow_non_restored: bool | list[str] = False,
    ) -> None:
        """Restart the same program from a snapshot of it, at this or another parallelism.

        Outputs return to their state in the snapshot. The entries that were pushed after the snapshot are read again.

        Raises:
            RestoreRefused: the snapshot does not fit.
        """
        self._driver.outputs = Outputs(snapshot.outputs)
        self._driver.begin(self._build(), self._journal, snapshot.location, parallelism, allow_non_restored)

    @classmethod
    def restore_into(
        cls,
        snapshot: JobSnapshot,
        program_builder: Callable[[JobHarness], None],
        parallelism: int = 1,
        *,
        max_parallelism: int = 128,
        configuration: Mapping[str, Any] | Configuration | None = None,
        backend: str = "hashmap",
        allow_non_restored: bool | list[str] = False,
    ) -> JobHarness:
        """Start another program from a snapshot, as in an upgrade.

        The program continues the snapshot's sources, and has no outputs yet.

        Args:
            program_builder: declares sources, streams and outputs on the harness that it receives.
            allow_non_restored: uids whose state may be dropped; True means all uids.

        Raises:
            RestoreRefused: the snapshot does not fit the program.
        """
        harness = cls(parallelism, max_parallelism, configuration, backend=backend, start_time=snapshot.time)
        harness._journal = snapshot.journal.copy()
        program_builder(harness)
        harness._restored = snapshot
        harness._driver.begin(
            harness._build(), harness._journal, snapshot.location, allow_non_restored=allow_non_restored
        )
        return harness

    # --- looking inside ---------------------------------------------------------------------------------------

    @property
    def status(self) -> JobStatus | None:
        """Return the final status of the job, or None while it runs."""
        return self._driver.status

    @property
    def restarts(self) -> int:
        """Return the number of failovers."""
        return self._driver.restarts

    @property
    def parallelism(self) -> int:
        self._start()
        return self._driver.master.parallelism

    @property
    def lines(self) -> list[str]:
        """Return the lines that `print` printed. A crash does not remove lines, unlike outputs."""
        self.run()
        return self._driver.lines

    def state_size(self, uid: str) -> int:
        """Return the number of entries of keyed state of an operator in all subtasks."""
        self.run()
        return sum(
            backend.entry_count()
            for subtask in self._driver.runner.subtasks()
            for backend_uid, backend in subtask.keyed_backends().items()
            if backend_uid == uid
        )

    def watermark(self, name: str) -> int:
        """Return the event time (ms) at an output: the lowest of its subtasks that are not idle.

        If all subtasks are idle, it is the highest event time. At first it is MIN_TIMESTAMP.
        """
        self._check_output(name)
        self.run()
        uid = _uid_of_output(name)
        known = [(s.is_idle, marks[uid]) for s in self._driver.runner.subtasks() if uid in (marks := s.watermarks())]
        active = [mark for is_idle, mark in known if not is_idle]
        return min(active) if active else max((mark for _, mark in known), default=MIN_TIMESTAMP)


def _uid_of_output(name: str) -> str:
    return f"collect-{name}"
