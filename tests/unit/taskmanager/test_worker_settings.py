"""Settings that reach the worker: the place of local files, and the identifiers of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.functions.operator_context import SystemClock
from penstock.functions.process_functions import KeyedProcessFunction
from penstock.jobmanager.job.settings import JobSettings
from penstock.metrics.metricbase import MetricGroup
from penstock.state.rocksdb.memory import SlotMemory
from penstock.state.rocksdb.options import MEMORY
from penstock.taskmanager.code.payload import TaskSettings
from penstock.taskmanager.local_state.folders import new_state_folder
from penstock.taskmanager.worker import _Slot
from tests.in_process import environment, run

IDENTIFIERS: list[str] = []
FOUND: list[Path] = []


class Finds(KeyedProcessFunction):
    """A function that records the files of a folder while the job runs."""

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
    with pytest.raises(InvalidJob, match="the variable <room> does not exist"):
        JobSettings.from_configuration({"metrics.scope.operator": "<room>"})


@pytest.mark.parametrize(
    ("disks", "places"), [(["ssd"], ["ssd"] * 3), (["a", "b"], ["a", "b", "a"]), ([], ["work"] * 3)]
)
def test_rocksdb_files_are_in_the_configured_localdir(disks: list[str], places: list[str], tmp_path: Path) -> None:
    options = {"localdir": ", ".join(str(tmp_path / disk) for disk in disks)}
    made = [new_state_folder(options, str(tmp_path / "work"), slot, f"slot-{slot}") for slot in range(3)]
    assert [Path(folder.path).parent for folder in made] == [tmp_path / place for place in places]


@pytest.mark.parametrize(("control_address", "shares"), [("", [None, 30, 30]), ("localhost:1", [None, 20, 10])])
def test_operators_of_a_slot_share_its_memory(control_address: str, shares: list[int | None]) -> None:
    """One process gets all of it. If each level has a process, the shares are in proportion to their keyed operators."""
    options = {MEMORY: 30 << 20, "memory.write-buffer-ratio": 0.5}
    graph = Graph([0, 2, 1])
    given = []
    for level in range(3):
        if not level or control_address:
            slot = _Slot(cloudpickle.dumps(graph), TaskSettings("job", "job", 1), 0, SystemClock())
            slot.settings = TaskSettings(
                "job", "job", 1, backend="rocksdb", backend_options=options, control_address=control_address
            )
        given.append(slot._backend_options(level)[MEMORY])
    sizes = [memory.size >> 20 if isinstance(memory, SlotMemory) else None for memory in given]
    assert sizes == shares
    assert control_address or given[1] is given[2], "a budget each"


class Graph:
    """A graph with this many keyed operators on each level."""

    def __init__(self, keyed: list[int]) -> None:
        self.keyed = keyed

    @property
    def keyed_operators(self) -> int:
        return sum(self.keyed)

    def keyed_operators_on(self, level: int) -> int:
        return self.keyed[level]


def test_rocksdb_files_of_a_job_are_in_the_local_folder(tmp_path: Path) -> None:
    settings = {"state.backend.type": "rocksdb", "state.backend.rocksdb.localdir": str(tmp_path / "ssd")}
    env = environment(tmp_path, **settings)
    env.from_collection([1]).key_by(lambda n: n).process(Finds(tmp_path / "ssd")).print()
    run(env)
    assert FOUND
    assert not any((tmp_path / "ssd").iterdir())
