"""A hook of the user raises, exits, crashes, hangs or is killed, on real processes.

The job ends within seconds, and its error names the author's line. `tests/unit/taskmanager/code/test_user_hooks.py` tests that every hook
raises and exits in one process. The tests here combine kinds of faults, moments, levels, parallelism and runners. The default tests
cover every pair of these values. The slow ones cover every hook, and each case of the default tests with the other runner.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from tests.hooks.act import Act
from tests.hooks.programs import HOOKS, build
from tests.hooks.reported import check_reported
from tests.hooks.unimportable import unchanged
from tests.integration.engine.selfcheck.driver import configuration, environment

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark

IN_SECONDS = {
    "penstock.start.load-timeout": "3 s",
    "penstock.start.open-timeout": "3 s",
    "penstock.start.first-epoch-timeout": "10 s",
    "task.cancellation.timeout": "3 s",
    "penstock.source.enumerator-timeout": "3 s",
    "penstock.sink.commit-timeout": "3 s",
    "execution.checkpointing.timeout": "8 s",
}
"""Short limits, so that hung functions fail soon. A busy machine can take as long for other functions."""
ENDS_S = 60.0
"""Limit in seconds on a busy machine. Hung steps take 3 s of it."""


@pytest.fixture(autouse=True, scope="module")
def _slots_are_up(executor: EmbeddedExecutor, runner: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the cluster before the tests, because its start is not part of the measurement."""
    env = environment(configuration(runner, f"file://{tmp_path_factory.mktemp('warm')}"), 3)
    env.from_collection([1, 2, 3]).rebalance().map(str).add_sink(len)
    with executing_on(executor):
        env.execute("warm")


def failed(
    executor: EmbeddedExecutor, settings: dict[str, str], act: Act, *, deeper: bool, slots: int
) -> PenstockError:
    """Return the error of the job."""
    env = environment(settings, slots)
    if act.since:
        threading.Timer(1.0, Path(act.since).touch).start()
    began = time.monotonic()
    with executing_on(executor), pytest.raises(PenstockError) as caught:
        build(env, act, deeper=deeper).execute("misbehaves")
    assert time.monotonic() - began < ENDS_S
    master = executor.session.dispatcher.jobs()[-1]
    assert master.history.status is JobStatus.FAILED
    failure = master.history.failures[-1]
    if act.way != "vanish":
        assert "tests/hooks" in failure.traceback, failure
    return caught.value


def run(
    executor: EmbeddedExecutor, runner: str, folder: Path, hook: str, way: str, *, later: bool, deeper: bool
) -> None:
    """Run one case. A checkpoint that does not complete detects a function that hangs in an epoch."""
    settings = configuration(runner, f"file://{folder}") | {"restart-strategy.type": "none"}
    if way == "hang":
        settings |= IN_SECONDS
    act = Act(hook, way, since=str(folder / "now") if later else "")
    error = failed(executor, settings, act, deeper=deeper, slots=3 if deeper else 1)
    check_reported(error, HOOKS[hook], way)


BOTH = ""
PAIRS: list[tuple[str, str, bool, bool, str]] = [
    # hook, kind of fault, later, deeper (with three slots), runner of the default tests
    ("open", "raise", False, True, "pipelined"),
    ("open", "hang", False, False, "batched"),
    ("unpickle", "raise", False, True, "batched"),
    ("unpickle", "hang", False, True, "pipelined"),
    ("map", "exit", True, True, "batched"),
    ("map", "crash", False, False, "pipelined"),
    ("map", "hang", True, False, BOTH),
    ("process_element", "crash", True, True, "batched"),
    ("event_timer", "raise", True, False, "pipelined"),
    ("write", "vanish", False, True, BOTH),
    ("close", "raise", False, False, "batched"),
    ("close", "hang", False, True, "pipelined"),
    ("close", "crash", False, True, "batched"),
    ("discover", "exit", True, False, "pipelined"),
    ("discover", "hang", True, False, "pipelined"),
    ("commit", "hang", True, True, "batched"),
]


@pytest.mark.parametrize(
    ("runner", "hook", "way", "later", "deeper"),
    [
        pytest.param(runner, *case, marks=() if default in (runner, BOTH) else pytest.mark.slow)
        for runner in ("batched", "pipelined")
        for *case, default in PAIRS
    ],
    indirect=["runner"],
    scope="session",
)
def test_the_error_names_the_authors_line(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path, hook: str, way: str, later: bool, deeper: bool
) -> None:
    run(executor, runner, tmp_path, hook, way, later=later, deeper=deeper)


def test_a_module_that_a_worker_cannot_import_is_reported(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path
) -> None:
    env = environment(configuration(runner, f"file://{tmp_path}") | {"restart-strategy.type": "none"}, 2)
    env.from_collection([1, 2]).rebalance().map(unchanged).add_sink(str)
    with executing_on(executor), pytest.raises(PenstockError) as caught:
        env.execute("cannot be imported")
    assert "the job cannot be loaded by a worker" in caught.value.message
    assert "tests/hooks/unimportable.py" in caught.value.message
    assert "RuntimeError: out of order" in str(caught.value)


def test_a_later_attempt_fails_like_the_first(executor: EmbeddedExecutor, runner: str, tmp_path: Path) -> None:
    """Let `open` raise in the attempt that a rescale starts."""
    act = Act("open", "raise", since=str(tmp_path / "now"))
    env = environment(configuration(runner, f"file://{tmp_path}") | {"restart-strategy.type": "none"}, 1)
    with executing_on(executor):
        build(env, act).execute_async("misbehaves later")
    master = executor.session.dispatcher.jobs()[-1]
    deadline = time.monotonic() + ENDS_S
    while master.history.status is not JobStatus.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    Path(act.since).touch()
    master.request(Operation("rescale", {"parallelism": 2}))
    assert master.wait(ENDS_S) is JobStatus.FAILED
    assert "Maps.open raised RuntimeError: out of order" in str(master.history.failures[-1].message)


def _all() -> list[Any]:
    """Return every hook of a task with every kind of fault. Moments and places take turns."""
    return [
        pytest.param(hook.name, way, not (hook.start or hook.bounded) and (at + n) % 2 == 0, (at + n) // 2 % 2 == 0)
        for at, hook in enumerate(HOOKS.values())
        for n, way in enumerate([*hook.ways, "crash", "hang"])
        if hook.side == "task"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("hook", "way", "later", "deeper"), _all())
def test_every_hook_with_every_kind_of_fault_names_the_line(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path, hook: str, way: str, later: bool, deeper: bool
) -> None:
    run(executor, runner, tmp_path, hook, way, later=later, deeper=deeper)
