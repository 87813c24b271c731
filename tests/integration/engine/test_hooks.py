"""A hook of the user's raises, ends its process, crashes, hangs or is killed, on real processes: the job ends within seconds,
and its author is told the line.

Every hook raises and exits in one process (`tests/unit/taskmanager/test_user_hooks.py`). Here ways, moments, levels and
parallelism meet each other: in the default tests so that every two of them do, in the slow ones with every hook.
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
from tests.hooks.told import check_told
from tests.hooks.unimportable import unchanged
from tests.integration.engine.selfcheck.driver import configuration, environment

if TYPE_CHECKING:
    from penstock.jobmanager.process.embedded import EmbeddedExecutor

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
"""For what hangs; a busy machine takes as long for what does not."""
ENDS_S = 60.0
"""On a busy machine; hung steps take 3 s of it."""


@pytest.fixture(autouse=True, scope="module")
def _slots_are_up(executor: EmbeddedExecutor, runner: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cluster's start is not what is measured."""
    env = environment(configuration(runner, f"file://{tmp_path_factory.mktemp('warm')}"), 3)
    env.from_collection([1, 2, 3]).rebalance().map(str).add_sink(len)
    with executing_on(executor):
        env.execute("warm")


def failed(
    executor: EmbeddedExecutor, settings: dict[str, str], act: Act, *, deeper: bool, slots: int
) -> PenstockError:
    """What the job ends with."""
    env = environment(settings, slots)
    if act.since:
        threading.Timer(1.0, Path(act.since).touch).start()
    began = time.monotonic()
    with executing_on(executor), pytest.raises(PenstockError) as caught:
        build(env, act, deeper=deeper).execute("misbehaves")
    assert time.monotonic() - began < ENDS_S
    master = executor.session.dispatcher.jobs()[-1]
    assert master.history.status is JobStatus.FAILED
    told = master.history.failures[-1]
    if act.way != "vanish":
        assert "tests/hooks" in told.traceback, told
    return caught.value


def run(
    executor: EmbeddedExecutor, runner: str, folder: Path, hook: str, way: str, *, later: bool, deeper: bool
) -> None:
    """A function that hangs in an epoch is noticed by the checkpoint that does not come to its end."""
    settings = configuration(runner, f"file://{folder}") | {"restart-strategy.type": "none"}
    if way == "hang":
        settings |= IN_SECONDS
    act = Act(hook, way, since=str(folder / "now") if later else "")
    error = failed(executor, settings, act, deeper=deeper, slots=3 if deeper else 1)
    check_told(error, HOOKS[hook], way)


PAIRS: list[tuple[str, str, bool, bool]] = [
    # hook, way, later, deeper (with three slots)
    ("open", "raise", False, True),
    ("open", "hang", False, False),
    ("unpickle", "raise", False, True),
    ("unpickle", "hang", False, True),
    ("map", "exit", True, True),
    ("map", "crash", False, False),
    ("map", "hang", True, False),
    ("process_element", "crash", True, True),
    ("event_timer", "raise", True, False),
    ("write", "vanish", False, True),
    ("close", "raise", False, False),
    ("close", "hang", False, True),
    ("close", "crash", False, True),
    ("discover", "exit", True, False),
    ("discover", "hang", True, False),
    ("commit", "hang", True, True),
]


@pytest.mark.parametrize(("hook", "way", "later", "deeper"), PAIRS)
def test_the_author_is_told_his_line(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path, hook: str, way: str, later: bool, deeper: bool
) -> None:
    run(executor, runner, tmp_path, hook, way, later=later, deeper=deeper)


def test_a_module_that_a_worker_cannot_import(executor: EmbeddedExecutor, runner: str, tmp_path: Path) -> None:
    env = environment(configuration(runner, f"file://{tmp_path}") | {"restart-strategy.type": "none"}, 2)
    env.from_collection([1, 2]).rebalance().map(unchanged).add_sink(str)
    with executing_on(executor), pytest.raises(PenstockError) as caught:
        env.execute("cannot be imported")
    assert "the job cannot be loaded by a worker" in caught.value.message
    assert "tests/hooks/unimportable.py" in caught.value.message
    assert "RuntimeError: out of order" in str(caught.value)


def test_an_attempt_that_follows_another_fails_as_the_first_one(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path
) -> None:
    """Its `open` raises, in the attempt that a rescale begins."""
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
    """Every hook of a task in every way; moments and places take turns."""
    return [
        pytest.param(hook.name, way, not (hook.start or hook.bounded) and (at + n) % 2 == 0, (at + n) // 2 % 2 == 0)
        for at, hook in enumerate(HOOKS.values())
        for n, way in enumerate([*hook.ways, "crash", "hang"])
        if hook.side == "task"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("hook", "way", "later", "deeper"), _all())
def test_every_hook_in_every_way(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path, hook: str, way: str, later: bool, deeper: bool
) -> None:
    run(executor, runner, tmp_path, hook, way, later=later, deeper=deeper)
