from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import auctions
from benchmarks.nexmark_reference import QUERIES, expected, summary
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess, environment

sys.path.append(str(Path(auctions.__file__).parent / "programs"))

import penstock_nexmark

EVENTS = 6000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return auctions.prepare(EVENTS, tmp_path_factory.mktemp("nexmark"))


def test_the_generator_makes_the_same_events_every_time(data: Path, tmp_path: Path) -> None:
    again = auctions.prepare(EVENTS, tmp_path)
    lines = [(folder / "events" / f"part-{n}.jsonl").read_text() for folder in (data, again) for n in range(2)]
    assert lines[:2] == lines[2:]
    events = [json.loads(line) for part in lines[:2] for line in part.splitlines()]
    assert len(events) == EVENTS
    assert [sum(event["event_type"] == kind for event in events) for kind in range(3)] == [120, 360, 5520]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_returns_the_same_result_as_duckdb(query: str, data: Path, tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.set_parallelism(2)
    penstock_nexmark.build(env, query, str(data), str(tmp_path))
    with executing_on(Session(InProcess())):
        env.execute(query)
    summaries = [json.loads(path.read_text()) for path in tmp_path.glob("summary-*.json")]
    found = {name: sum(one[name] for one in summaries) for name in ("count", "hash")}
    assert found == summary(expected(query, data))
    assert found["count"]
