"""The report of a crashed Python worker: the user's line that ran, if the dump of the stack shows it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from penstock.common.errors import EpochFailed, UserFunctionError
from penstock.datastream.functions import MapFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingProcessingTimeWindows
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.failover import failures
from penstock.jobmanager.failover.crash import DIED, MemoryKill, TaskEnd, crash_of
from penstock.jobmanager.failover.failures import JobFailed, failure_of
from penstock.taskmanager import level
from penstock.taskmanager.operators.batch_mode.by_key import SortedKeyOperator
from penstock.taskmanager.operators.connectors.sink import SinkOperator
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.operators.simple import MapOperator
from penstock.taskmanager.operators.window.grouped import GroupedWindows
from penstock.taskmanager.operators.window.operator import WindowOperator
from penstock.taskmanager.protocol import TaskFailure
from tests.hooks import endpoints
from tests.hooks.act import Act

ENGINE = level.__file__


def shared(value: Any) -> Any:
    return value


class Doubles(MapFunction):
    def map(self, value: Any) -> Any:
        return shared(2 * value)


class Halves(MapFunction):
    def map(self, value: Any) -> Any:
        return shared(value / 2)


def line_of(method: Any) -> int:
    return inspect.getsourcelines(method)[1] + 1


@pytest.fixture(scope="module")
def graph() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1, 2])
    numbers.rebalance().map(Doubles()).name("doubles").map(Halves()).name("halves").print().name("out")
    return JobGraphBuilder(env.get_program().transformations, name="numbers", parallelism=2, max_parallelism=8).build()


def ended(report: str, slot: int = 1, at: int = 1) -> TaskEnd:
    return TaskEnd.parse(f"{slot}\n{at}\nhost-7\n{report}")


def dump(
    *frames: tuple[str, int, str], head: str = "Fatal Python error: Segmentation fault", current: bool = True
) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    of = (
        "Current thread 0x00007f01 (most recent call first):"
        if current
        else "Thread 0x00007f01 (most recent call first):"
    )
    other = [
        "Thread 0x00007f02 (most recent call first):",
        '  File "/usr/lib/python3.11/threading.py", line 320 in wait',
    ]
    order = [of, *lines, "", *other] if current else [*other, "", of, *lines]
    return "\n".join([f"{DIED} (crashed): {head}", "", *order, ""])


def crash_in(function: Any, **more: Any) -> str:
    frames = ((__file__, line_of(shared), "shared"), (__file__, line_of(function.map), "map"), (ENGINE, 210, "_timed"))
    return dump(*frames, **more)


@pytest.mark.parametrize(("function", "name"), [(Doubles, "doubles"), (Halves, "halves")])
def test_the_report_starts_with_the_operator_and_the_users_line(graph: JobGraph, function: Any, name: str) -> None:
    crash = crash_of([ended("the channel was closed", 0, 0), ended(crash_in(function))], graph)
    assert isinstance(crash, JobFailed)
    failure = crash.failure
    assert failure.name == name
    assert failure.location.startswith(f"{__file__}:")
    assert "slot 1, level 1 on host-7 has crashed: Segmentation fault" in failure.message
    assert f"(at {__file__}:{line_of(shared)} in shared)" in failure.message
    first = failure.traceback.splitlines()[1:3]
    assert first == [f'  File "{__file__}", line {line_of(function.map)}, in map', f"    {_words(function)}"]
    report = str(failure_of(crash))
    assert report.rstrip().endswith("Segmentation fault")
    assert failures.entry_of(crash, 5).host == "host-7"


def _words(function: Any) -> str:
    return inspect.getsource(function.map).splitlines()[1].strip()


def frame_in(method: Any) -> tuple[str, int, str]:
    return inspect.getfile(method), line_of(method), method.__name__


def chained(*maps: str) -> JobGraph:
    """Return a graph of a user's source and sink that share an object, with maps of these names between them."""
    env = StreamExecutionEnvironment.get_execution_environment()
    act = Act("read", "crash")
    stream = env.from_source(endpoints.Numbers(act), None, "own source")
    for name in maps:
        stream = stream.map(shared).name(name)
    stream.sink_to(endpoints.Nowhere(act)).name("own sink")
    return JobGraphBuilder(env.get_program().transformations, name="ends", parallelism=1, max_parallelism=8).build()


@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ((endpoints.Writer.prepare_commit, SinkOperator.snapshot), "own sink"),
        ((endpoints.Writer.write, SinkOperator.process_batch, SourceOperator.read), "own sink"),
        ((endpoints.Numbered.read, SourceOperator.read), "own source"),
    ],
)
def test_the_innermost_of_chained_operators_with_the_same_function_is_named(calls: Any, name: str) -> None:
    frames = [frame_in(method) for method in (Act.__call__, *calls)]
    crash = crash_of([ended(dump(*frames, (ENGINE, 210, "_timed")), 0, 0)], chained())
    assert isinstance(crash, JobFailed)
    assert crash.failure.name == name


def larger(one: Any, other: Any) -> Any:
    return max(one, other)


def test_an_operator_in_batch_mode_is_found_behind_its_input_buffer() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    windows = env.from_collection([1]).key_by(shared).window(TumblingProcessingTimeWindows.of(1000))
    windows.reduce(larger).name("largest").map(Halves()).name("halves").print()
    windows.reduce(lambda one, other: min(one, other)).name("least").print()
    program = env.get_program()
    graph = JobGraphBuilder(program.transformations, name="batch", parallelism=1, mode="BATCH").build()
    calls = (
        larger,
        GroupedWindows.process,
        WindowOperator.process_batch,
        SortedKeyOperator.process_remaining,
        SortedKeyOperator.process_watermark,
    )
    crash = crash_of([ended(dump(*map(frame_in, calls), (ENGINE, 210, "_timed")), 0, 1)], graph)
    assert isinstance(crash, JobFailed)
    assert crash.failure.name == "largest"


def test_operators_that_cannot_be_distinguished_are_all_named() -> None:
    frames = [frame_in(method) for method in (shared, MapOperator.process_batch, SourceOperator.read)]
    crash = crash_of([ended(dump(*frames, (ENGINE, 210, "_timed")), 0, 0)], chained("first", "second"))
    assert isinstance(crash, JobFailed)
    assert crash.failure.name == "first or second"


def test_the_thread_of_the_task_is_found_without_a_current_thread(graph: JobGraph) -> None:
    crash = crash_of([ended(crash_in(Halves, head="Timeout (0:00:03)!", current=False))], graph)
    assert isinstance(crash, JobFailed)
    assert crash.failure.name == "halves"
    assert "Timeout (0:00:03)!" in crash.failure.message


def test_a_stack_without_a_line_of_the_user_names_no_operator(graph: JobGraph) -> None:
    crash = crash_of([ended(dump((ENGINE, 210, "_timed")))], graph)
    assert isinstance(crash, JobFailed)
    assert crash.failure.name == ""
    assert "slot 1, level 1" in crash.failure.message


def test_a_crash_while_functions_are_closed_may_be_of_any_level(graph: JobGraph) -> None:
    crash = crash_of([ended(crash_in(Halves), at=0)], graph, closing=True)
    assert isinstance(crash, JobFailed)
    assert crash.failure.name == "halves"
    assert "of slot 1 on host-7 has crashed" in crash.failure.message
    silent = crash_of([ended(f"{DIED} (crashed)", at=0)], graph, closing=True)
    assert "halves" in str(silent)


def test_a_worker_without_a_stack_is_named_by_its_slot(graph: JobGraph) -> None:
    crash = crash_of([ended(f"{DIED} (crashed)")], graph)
    assert isinstance(crash, EpochFailed)
    assert "slot 1, level 1 on host-7" in crash.message
    assert "doubles" in crash.message
    assert "memory" in crash.message
    assert crash.remedy


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(512 * 2**20, "its container has used all of its 512Mi"), (0, "the machine has run out of memory")],
)
def test_a_worker_killed_for_memory_reports_limit_and_remedy(graph: JobGraph, limit: int, reason: str) -> None:
    requests: list[str] = []

    def killed(host: str) -> MemoryKill:
        requests.append(host)
        return MemoryKill(limit)

    crash = crash_of([ended(f"{DIED} (crashed)")], graph, killed=killed)
    assert isinstance(crash, EpochFailed)
    assert requests == ["host-7"]
    assert "slot 1, level 1 on host-7, which ran 'doubles" in crash.message
    assert "signal 9, SIGKILL" in crash.message
    assert reason in crash.message
    assert "raise taskmanager.memory.process.size, or lower taskmanager.numberOfTaskSlots" in crash.remedy


def test_a_stack_takes_precedence_over_a_memory_kill(graph: JobGraph) -> None:
    crash = crash_of([ended(crash_in(Halves))], graph, killed=lambda host: MemoryKill(1))
    assert isinstance(crash, JobFailed)


def test_other_failures_of_tasks_are_not_crashes(graph: JobGraph) -> None:
    assert crash_of([ended("java.io.IOException: the channel was closed")], graph) is None
    assert crash_of([], graph) is None


class _OwnKind(UserFunctionError):
    """A subclass of the program, with the code of its base class."""


def test_a_subclass_with_the_code_of_its_base_class_hides_no_traceback() -> None:
    failure = TaskFailure(
        kind="ZeroDivisionError", message="m", detail="d", traceback="Traceback: 1 / 0", name="Map", code=_OwnKind.code
    )
    found = failure_of(JobFailed(failure, "host"))
    assert type(found) is UserFunctionError
    assert "1 / 0" in str(found)
