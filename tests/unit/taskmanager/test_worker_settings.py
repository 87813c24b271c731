"""Settings that reach the worker: where local files go, how identifiers of metrics begin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.functions.process_functions import KeyedProcessFunction
from penstock.jobmanager.job.settings import JobSettings
from penstock.metrics.metricbase import MetricGroup
from penstock.taskmanager.local_folders import new_state_folder
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
    ("disks", "places"), [(["ssd"], ["ssd"] * 3), (["a", "b"], ["a", "b", "a"]), ([], ["work"] * 3)]
)
def test_rocksdb_files_go_where_localdir_says(disks: list[str], places: list[str], tmp_path: Path) -> None:
    options = {"localdir": ", ".join(str(tmp_path / disk) for disk in disks)}
    made = [new_state_folder(options, str(tmp_path / "work"), slot, f"slot-{slot}") for slot in range(3)]
    assert [Path(folder.path).parent for folder in made] == [tmp_path / place for place in places]


def test_rocksdb_of_a_job_lies_there(tmp_path: Path) -> None:
    settings = {"state.backend.type": "rocksdb", "state.backend.rocksdb.localdir": str(tmp_path / "ssd")}
    env = environment(tmp_path, **settings)
    env.from_collection([1]).key_by(lambda n: n).process(Finds(tmp_path / "ssd")).print()
    run(env)
    assert FOUND
    assert not any((tmp_path / "ssd").iterdir())
