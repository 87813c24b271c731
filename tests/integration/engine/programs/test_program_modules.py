"""Workers run functions of modules that the program imports, wherever the program found them."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.restart_strategy import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark
MODULE = "modules_of_a_program"


@pytest.fixture(autouse=True)
def _path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop(MODULE, None)


def _module(folder: Path, text: str) -> Path:
    folder.mkdir()
    path = folder / f"{MODULE}.py"
    path.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    sys.modules.pop(MODULE, None)
    return path


def _results(executor: EmbeddedExecutor, function: Any, env: StreamExecutionEnvironment | None = None) -> list[int]:
    env = env or StreamExecutionEnvironment.get_execution_environment()
    with executing_on(executor):
        return list(env.from_collection([1, 2, 3]).map(function).execute_and_collect())


def test_a_function_of_a_module_on_the_programs_path_runs(executor: EmbeddedExecutor, tmp_path: Path) -> None:
    assert _results(executor, lambda value: value) == [1, 2, 3]  # the cluster starts before the path changes
    sys.path.insert(0, str(_module(tmp_path / "a", "def change(value): return value + 1").parent))
    assert _results(executor, importlib.import_module(MODULE).change) == [2, 3, 4]


def test_a_later_job_has_separate_modules(executor: EmbeddedExecutor, tmp_path: Path) -> None:
    for name, factor in (("a", 10), ("b", 100)):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.add_python_file(str(_module(tmp_path / name, f"def change(value): return value * {factor}")))
        assert _results(executor, importlib.import_module(MODULE).change, env) == [factor, 2 * factor, 3 * factor]


def test_a_function_of_the_test_module_runs(executor: EmbeddedExecutor) -> None:
    assert _results(executor, plus_one) == [2, 3, 4]


def plus_one(value: int) -> int:
    return value + 1


def test_a_module_that_workers_do_not_find_is_named_and_ends_the_job_immediately(executor: EmbeddedExecutor) -> None:
    module = types.ModuleType(MODULE)
    exec("def change(value): return value", vars(module))
    module.change.__module__ = MODULE
    module.__file__ = "somewhere"
    sys.modules[MODULE] = module
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 100))
    with pytest.raises(InvalidJob, match=f"No module named '{MODULE}'") as refused:
        _results(executor, module.change, env)
    assert "sys.path" in str(refused.value)
