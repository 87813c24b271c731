"""If a user hook raises or calls `sys.exit`, the job ends with an error that names the user's line.

These tests try every hook in one process. Real processes that are killed or that hang are tested in
`tests/integration/engine`.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.hooks.act import Act
from tests.hooks.programs import HOOKS, build
from tests.hooks.reported import check_reported
from tests.in_process import InProcess, environment

ENDS_S = 20.0


def ended(act: Act, folder: Path, *, deeper: bool, parallelism: int) -> tuple[PenstockError, Session]:
    """Return the error of the job."""
    settings = {"restart-strategy.type": "none", "penstock.epoch.target": "20 ms"}
    env = environment(folder, **settings).set_parallelism(parallelism)
    session = Session(InProcess())
    if act.since:
        threading.Timer(0.1, Path(act.since).touch).start()
    began = time.monotonic()
    with executing_on(session), pytest.raises(PenstockError) as caught:
        build(env, act, deeper=deeper).execute("misbehaves")
    assert time.monotonic() - began < ENDS_S
    return caught.value, session


@pytest.mark.parametrize(("name", "way"), [(hook.name, way) for hook in HOOKS.values() for way in hook.ways])
def test_an_error_of_a_hook_names_the_line_of_its_author(name: str, way: str, tmp_path: Path) -> None:
    """Levels, parallelism and the moment vary with the hooks."""
    turn = list(HOOKS).index(name) + (way == "exit")
    later = turn % 3 == 0 and not HOOKS[name].start and not HOOKS[name].bounded
    act = Act(name, way, since=str(tmp_path / "now") if later else "")
    error, session = ended(act, tmp_path, deeper=turn % 2 == 0, parallelism=(1, 3)[turn // 2 % 2])
    check_reported(error, HOOKS[name], way)
    for master in session.dispatcher.jobs():
        assert master.history.status is JobStatus.FAILED
        failure = master.history.failures[0]
        assert f'act("{name}")' in failure.traceback or name.endswith("timer")
        assert "tests/hooks" in failure.message
