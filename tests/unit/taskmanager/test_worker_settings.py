"""Settings that reach the worker: where local files go, how identifiers of metrics begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.datastream.process_functions import KeyedProcessFunction
from penstock.jobmanager.settings import JobSettings
from penstock.metrics.metricbase import MetricGroup
from penstock.taskmanager.worker import TaskSettings, _local_folder
from tests.in_process import environment, run

IDENTIFIERS: list[str] = []
FOUND: list[Path] = []


class Finds(KeyedProcessFunction):
    """Notes what lies in a folder while the job runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        FOUND.extend(self.folder.iterdir())
        yield value


class Named(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        assert isinstance(group, MetricGroup)
        IDENTIFIERS.append(group.get_metric_identifier("n"))

    def map(self, value: int) -> int:
        return value


@pytest.fixture(autouse=True)
def identifiers() -> list[str]:
    IDENTIFIERS.clear()
    FOUND.clear()
    return IDENTIFIERS


def test_identifiers_follow_the_configured_format(tmp_path: Path, identifiers: list[str]) -> None:
    scopes = {"metrics.scope.operator": "mine.<operator_name>.<subtask_index>", "metrics.scope.delimiter": "/"}
    env = environment(tmp_path, **scopes)
    env.from_collection([1]).map(Named()).name("named").print()
    run(env)
    assert identifiers == ["mine/named/0/n"]


def test_a_format_with_an_unknown_variable_is_refused_before_the_job_starts() -> None:
    with pytest.raises(InvalidJob, match="no variable <room>"):
        JobSettings.from_configuration({"metrics.scope.operator": "<room>"})


@pytest.mark.parametrize(
    ("localdir", "folders"),
    [("/ssd", ["/ssd", "/ssd", "/ssd"]), ("/a, /b", ["/a", "/b", "/a"]), ("", ["/tmp/p", "/tmp/p", "/tmp/p"])],
)
def test_rocksdb_files_go_where_localdir_says(localdir: str, folders: list[str]) -> None:
    settings = TaskSettings("id", "job", 0, backend_options={"localdir": localdir}, work_dir="/tmp/p")
    assert [_local_folder(settings, slot) for slot in range(3)] == folders


def test_rocksdb_of_a_job_lies_there(tmp_path: Path) -> None:
    settings = {"state.backend.type": "rocksdb", "state.backend.rocksdb.localdir": str(tmp_path / "ssd")}
    env = environment(tmp_path, **settings)
    env.from_collection([1]).key_by(lambda n: n).process(Finds(tmp_path / "ssd")).print()
    run(env)
    assert FOUND
    assert not any((tmp_path / "ssd").iterdir())
