"""Run the Python programs of the documentation pages.

The programs of a page run in order in one namespace, as a reader would enter them. Jobs run in this process. A `text` block directly
after a program is its output, in any order and without the numbers of the subtasks. Functions named `test_…` are called, too. A program
that begins with a comment `# NAME.py` is also a module that later programs import.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import create_autospec, patch

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from penstock.cli.client import RestClient
from penstock.cli.live import LiveView
from penstock.cli.queryable_state import QueryableStateClient
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.testing import JobHarness, OperatorHarness
from tests.in_process import InProcess
from tests.unit.test_docs import PAGES, ROOT
from tools.devcluster import Cluster

PROGRAM = re.compile(r"```python\n(.*?)```(?:\n\n(?:The output is:\n\n)?```text\n(.*?)```)?", re.DOTALL)
MODULE = re.compile(r"# (\w+)\.py\n")
SUBTASK = re.compile(r"^(?:(\w+):)?\d+> ")
SERVERS = {
    "penstock.cli.client.RestClient": RestClient,
    "penstock.cli.live.LiveView": LiveView,
    "penstock.cli.queryable_state.QueryableStateClient": QueryableStateClient,
    "tools.devcluster.Cluster": Cluster,
}
"""Classes that need a server. The programs get doubles with the same methods and parameters."""
WITH_PROGRAMS = [page for page in PAGES if PROGRAM.search(page.read_text())]


def printed(text: str) -> list[str]:
    """Return the lines of a job's output, sorted, with the prefix of `print(prefix)` and without the numbers of subtasks."""
    return sorted(SUBTASK.sub(lambda found: f"{found[1]}> " if found[1] else "", line) for line in text.splitlines())


def reading_schema() -> descriptor_pb2.FileDescriptorProto:
    """Return the Protobuf schema that the pages use as `weather.desc` and `weather_pb2`."""
    schema = descriptor_pb2.FileDescriptorProto(name="weather.proto", package="weather", syntax="proto3")
    message = schema.message_type.add(name="Reading")
    message.field.add(name="celsius", number=1, type="TYPE_DOUBLE", label="LABEL_OPTIONAL", json_name="celsius")
    return schema


def write_schemas() -> ModuleType:
    """Write the schema files that the pages read into the working directory. Return the module that protoc would generate."""
    schema = reading_schema()
    Path("weather.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[schema]).SerializeToString())
    Path("reading.avsc").write_text(
        '{"type": "record", "name": "Reading", "fields": [{"name": "celsius", "type": "double"}]}'
    )
    module = ModuleType("weather_pb2")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    found = pool.FindMessageTypeByName("weather.Reading")
    module.Reading = message_factory.GetMessageClass(found)  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "weather_pb2", write_schemas())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["job.py", "output", "120"])
    names: dict[str, Any] = {"__name__": "__main__"}
    session = Session(InProcess())
    with ExitStack() as doubles:
        doubles.callback(session.stop)
        if (
            "connectors" in page.parts and page.name != "your-own.md"
        ):  # the jobs of these pages need servers, so they are only built
            monkeypatch.setattr(StreamExecutionEnvironment, "execute", built)
        for path, real in SERVERS.items():
            double = create_autospec(real)
            if hasattr(real, "__enter__"):
                double.return_value.__enter__.return_value = double.return_value
            doubles.enter_context(patch(path, double))
        for number, (program, output) in enumerate(PROGRAM.findall(page.read_text())):
            capfd.readouterr()
            if module := MODULE.match(program):
                Path(f"{module[1]}.py").write_text(program)
                doubles.callback(sys.modules.pop, module[1], None)
            with executing_on(session):
                exec(compile(program, f"{page.relative_to(ROOT)}, program {number}", "exec"), names)
            if output:
                assert printed(capfd.readouterr().out) == sorted(output.splitlines()), f"program {number}"
    call_tests(names)
    if page.name == "your-own.md":
        with closing(sqlite3.connect("words.db")) as database:
            assert database.execute("SELECT value FROM lengths ORDER BY value").fetchall() == [(2,), (2,), (3,)]


def built(env: StreamExecutionEnvironment, _name: str = "") -> None:
    assert env.get_execution_plan()


def call_tests(names: dict[str, Any]) -> None:
    """Call the tests that a page defines, with the fixtures of Penstock's pytest plugin."""
    for name, test in names.items():
        if name.startswith("test_"):
            wanted = test.__code__.co_varnames[: test.__code__.co_argcount]
            with ExitStack() as harnesses:
                given: dict[str, Callable[[], Any]] = {"job_harness": lambda: harnesses.enter_context(JobHarness())}
                given["operator_harness"] = lambda: (
                    lambda *args, **kwargs: harnesses.enter_context(OperatorHarness(*args, **kwargs))
                )
                test(**{fixture: given[fixture]() for fixture in wanted})
