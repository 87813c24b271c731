"""REST shows the Python workers of a running job: stacks by subtask, a flame graph with the user's line, and records on edges."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from penstock.common.configuration import Configuration
from penstock.common.job_status import JobStatus
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.rest.views.ids import vertex_id
from tests.in_process import until
from tests.integration.engine.selfcheck.driver import environment

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


def toils(value: int) -> int:
    ends = time.perf_counter() + 0.01
    while time.perf_counter() < ends:
        value += 1
    return value


def test_a_subtask_is_shown_at_the_users_line(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    env = environment(settings, 2)
    numbers = env.from_source(DataGeneratorSource(int, None, 1_000.0), None, "numbers")
    numbers.key_by(lambda value: value % 64).map(toils).name("toils").print()
    with executing_on(executor):
        env.execute_async("toiling")
    master = executor.session.dispatcher.jobs()[-1]
    until(lambda: master.history.status is JobStatus.RUNNING and bool(master.metrics.usage_by_slot()), master)
    server = executor.session.serve(Configuration({"rest.port": "0"}))
    assert server is not None
    try:
        with httpx.Client(base_url=server.url, timeout=30) as read:
            last = master.graph.stages[-1]
            graph = f"/jobs/{master.job_id}/vertices/{vertex_id(str(last.id))}/flamegraph"
            seen = read.get(graph, params={"seconds": 2, "type": "on_cpu", "subtaskindex": 1, "format": "folded"}).text
            ours = [line for line in seen.splitlines() if ".toils:" in line]
            assert sum(int(line.rpartition(" ")[2]) for line in ours) >= 20, seen
            workers = [worker["id"] for worker in read.get("/taskmanagers").json()["taskmanagers"]]
            dumps = [read.get(f"/taskmanagers/{worker}/thread-dump").json()["threadInfos"] for worker in workers]
            heads = {one["stringifiedThreadInfo"].split("\n")[0] for dump in dumps for one in dump}
            of_stages = [
                {f'"MainThread" (vertex {stage.id} #{index})' for index in range(2)} for stage in master.graph.stages
            ]
            if settings["penstock.runner"] == "pipelined":
                assert set().union(*of_stages) <= heads
            else:  # one process has all levels of its slot
                assert of_stages[-1] <= heads
    finally:
        server.stop()


def test_the_last_records_on_an_edge_come_from_the_workers(
    executor: EmbeddedExecutor, settings: dict[str, str]
) -> None:
    env = environment(settings, 2)
    numbers = env.from_source(DataGeneratorSource(int, None, 1_000.0), None, "numbers")
    numbers.key_by(lambda value: value % 64).map(lambda value: -value).name("negated").filter(lambda _: False).print()
    with executing_on(executor):
        env.execute_async("peeked")
    master = executor.session.dispatcher.jobs()[-1]
    until(lambda: master.history.status is JobStatus.RUNNING and bool(master.metrics.usage_by_slot()), master)
    server = executor.session.serve(Configuration({"rest.port": "0"}))
    assert server is not None
    edges = f"/jobs/{master.job_id}/edges"
    try:
        with httpx.Client(base_url=server.url, timeout=60) as read:

            def peek(name: str) -> list[dict[str, Any]]:
                """Return the answer to a short question."""
                answer = read.get(f"{edges}/records", params={"edge": name, "limit": 6, "seconds": 0.5})
                return list(answer.json()["records"])

            def six_records(name: str) -> list[dict[str, Any]]:
                answers: list[list[dict[str, Any]]] = [[]]

                def has_six() -> bool:
                    answers[0] = peek(name)
                    return len(answers[0]) == 6

                until(has_six, master)
                return answers[0]

            names = [edge["name"] for edge in read.get(edges).json()["edges"]]
            assert names[0] == "numbers → negated"
            sent, chained = six_records(names[0]), six_records(names[1])
            assert all(record["key"] == str(int(record["value"]) % 64) for record in sent)
            assert all(int(record["value"]) < 0 for record in chained)
            assert peek(names[-1]) == []
            began = time.monotonic()  # a process without the operator is not awaited
            read.get(f"{edges}/records", params={"edge": names[0], "limit": 6, "seconds": 30})
            assert time.monotonic() - began < 15
    finally:
        server.stop()
