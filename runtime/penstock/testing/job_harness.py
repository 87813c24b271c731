"""`JobHarness`: a whole job in one process, without Spark, on a clock that the test moves.

It is a JobMaster, stepped from the test's thread, on the in-process runner: job graph, chaining, exchanges, epochs,
checkpoints, failover and rescaling are those of a cluster. What the harness puts in place of the world outside is a journal
in place of Kafka, lists in place of sinks, and a clock that stands still until the test moves it.
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
"""Checkpoints kept: every snapshot that a test has taken can be restored."""


class _CrashMark:
    def __repr__(self) -> str:
        return "CRASH"


CRASH = _CrashMark()
"""Push it into a source, and the job fails over when it reaches it: once, not again when the source is rewound."""


class JobHarness:
    """A job under test.

    Args:
        parallelism: of operators that set none.
        max_parallelism: number of key groups.
        configuration: more settings, by key; checkpoints at an interval of the manual clock, say.
        backend: `hashmap` or `rocksdb`.
        start_time: what the clock shows at first (ms).

    >>> with JobHarness() as harness:
    ...     numbers = harness.source("numbers")
    ...     harness.collect(numbers.map(lambda n: n * 2), "doubled")
    ...     harness.push("numbers", 1, 2, 3)
    ...     harness.outputs("doubled")
    [2, 4, 6]

    The job starts with the first call that needs it running; sources and outputs are declared before. Records are
    processed in the order of the pushes, over all sources.
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
        self._restored: JobSnapshot | None = None  # keeps its files for as long as they may be restored
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
        """Leave the job where it is; the end of the `with` block does it. Snapshots stay good."""
        self._driver.end(JobStatus.SUSPENDED)
        self._driver.runner.close()

    # --- the program ------------------------------------------------------------------------------------------

    def environment(self) -> StreamExecutionEnvironment:
        """For whatever the program needs of it: other sources, settings. The harness calls `execute` in its place."""
        return self._environment

    def source(
        self, name: str, watermarks: WatermarkStrategy | None = None, type_info: Any = None, *, splits: int = 1
    ) -> DataStream:
        """A stream of what is pushed under that name; its uid is the name.

        Args:
            watermarks: as for any source; without one, event time is what `push` and `advance_watermark` say.
            splits: each with a watermark of its own; they are spread over the source's subtasks.
        """
        self._declare(name, list(self._splits), "source")
        if splits < 1:
            raise InvalidJob(f"source {name!r} with {splits} splits", remedy="give 1 or more")
        self._splits[name] = splits
        source = HarnessSource(name, self._journal, splits, to_type_info(type_info))
        return self._environment.from_source(source, watermarks, name, type_info).uid(name)

    def collect(self, stream: DataStream, name: str) -> None:
        """Keep what the stream gives, for `outputs`. A side output is collected by its stream, `get_side_output(tag)`."""
        self._declare(name, self._names, "output")
        self._names.append(name)
        stream.sink_to(HarnessSink(name)).name(name).uid(_uid_of_output(name))

    def _declare(self, name: str, known: list[str], what: str) -> None:
        if self._driver.has_started:
            raise InvalidJob(
                f"{what} {name!r} is declared while the job runs",
                remedy="declare sources and outputs before the first push",
            )
        if name in known:
            raise InvalidJob(f"there are two {what}s {name!r}", remedy="name each its own")

    # --- input ------------------------------------------------------------------------------------------------

    def push(self, source: str, *values: Any, timestamp: int | None = None, split: int = 0) -> None:
        """Put values into a source; they are processed by `run`, or when an output is looked at.

        Args:
            values: records, or `CRASH`.
            timestamp: event time of the values (ms); None: they carry none, unless the source's strategy gives one.
        """
        self._check_split(source, split)
        for value in values:
            if value is CRASH:
                self._journal.append(Entry(source, split, Kind.CRASH))
            else:
                self._journal.append(Entry(source, split, Kind.RECORD, encode(value), timestamp))

    def advance_watermark(self, source: str, timestamp: int, *, split: int | None = None) -> None:
        """Event time of a source moves to `timestamp` (ms): no earlier record follows. `split` None: in all its splits."""
        self._check_split(source, split)
        self._journal.append(Entry(source, split, Kind.WATERMARK, timestamp=timestamp))

    def set_idle(self, source: str, *, is_idle: bool = True, split: int | None = None) -> None:
        """An idle source does not hold the event time of the job back."""
        self._check_split(source, split)
        self._journal.append(Entry(source, split, Kind.IDLE if is_idle else Kind.ACTIVE))

    def close(self, source: str) -> None:
        """The source ends here, as a bounded one does; when all have, the job finishes."""
        self._check_split(source, None)
        self._journal.append(Entry(source, None, Kind.CLOSE))

    def _check_split(self, source: str, split: int | None) -> None:
        if source not in self._splits:
            raise InvalidJob(
                f"there is no source {source!r}", remedy=f"sources are: {', '.join(self._splits) or 'none'}"
            )
        if split is not None and not 0 <= split < self._splits[source]:
            raise InvalidJob(f"source {source!r} has {self._splits[source]} splits, not a split {split}")

    # --- output -----------------------------------------------------------------------------------------------

    def outputs(self, name: str) -> list[Any]:
        """The values of an output so far. Runs what is left to run."""
        return [value for value, _ in self.outputs_with_timestamps(name)]

    def outputs_with_timestamps(self, name: str) -> list[Record]:
        """As `outputs`, each with its event time (ms), or None."""
        self._check_output(name)
        self.run()
        return self._driver.outputs.of(name)

    def _check_output(self, name: str) -> None:
        if name not in self._names:
            raise InvalidJob(f"there is no output {name!r}", remedy=f"outputs are: {', '.join(self._names) or 'none'}")

    def take(self, name: str) -> list[Any]:
        """The values since the last `take`."""
        values = self.outputs(name)
        begin, self._taken[name] = min(self._taken.get(name, 0), len(values)), len(values)
        return values[begin:]

    # --- time and progress ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run epochs until nothing is left to do at this time.

        Raises:
            UserFunctionError: the job has failed for good.
        """
        self._start()
        self._driver.run()

    def advance_processing_time(self, to: int | None = None, by: int | timedelta | None = None) -> None:
        """Move the clock to a time, or by a time (ms). It stops wherever a timer or a checkpoint is due."""
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
        """Process what was pushed, then take a checkpoint. A crash goes back to the last one."""
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
        """Every task is lost, with its state. The job goes back to its last snapshot, or to the beginning.

        Outputs since then are taken back; sources read again what came since then.
        """
        self._start()
        self._driver.restart("the test crashed it")

    def rescale(self, parallelism: int) -> None:
        """Another parallelism, live."""
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
        """Start the same program anew from a snapshot of it, at this or another parallelism.

        Outputs are again what they were then; what was pushed after the snapshot is read again.

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
        """Start another program from a snapshot: an upgrade. It reads the snapshot's sources on, and has no outputs yet.

        Args:
            program_builder: declares sources, streams and outputs on the harness it is given.
            allow_non_restored: uids whose state may be dropped; True: any.

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
        """How the job has ended; None while it runs."""
        return self._driver.status

    @property
    def restarts(self) -> int:
        """How often the job failed over."""
        return self._driver.restarts

    @property
    def parallelism(self) -> int:
        self._start()
        return self._driver.master.parallelism

    @property
    def lines(self) -> list[str]:
        """What `print` printed. Unlike outputs, lines are not taken back by a crash."""
        self.run()
        return self._driver.lines

    def state_size(self, uid: str) -> int:
        """Entries of keyed state an operator holds, over all subtasks."""
        self.run()
        return sum(
            backend.entry_count()
            for subtask in self._driver.runner.subtasks()
            for backend_uid, backend in subtask.keyed_backends().items()
            if backend_uid == uid
        )

    def watermark(self, name: str) -> int:
        """The event time (ms) that has come to an output: the lowest of its subtasks; MIN_TIMESTAMP at first."""
        self._check_output(name)
        self.run()
        uid = _uid_of_output(name)
        marks = [marks[uid] for subtask in self._driver.runner.subtasks() if uid in (marks := subtask.watermarks())]
        return min(marks, default=MIN_TIMESTAMP)


def _uid_of_output(name: str) -> str:
    return f"collect-{name}"
