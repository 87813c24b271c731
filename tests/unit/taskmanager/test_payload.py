from __future__ import annotations

import threading

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.taskmanager.code.payload import TaskSettings, encode_payload


def test_a_function_that_cannot_be_sent_is_refused_by_its_name() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lock = threading.Lock()

    def guarded(value: int) -> int:
        with lock:
            return value

    env.from_collection([1, 2]).map(guarded).name("guarded map").print()
    program = env.get_program()
    graph = JobGraphBuilder(program.sinks, name=program.name, parallelism=program.parallelism).build()
    with pytest.raises(InvalidJob, match=r"cannot be sent to the workers.*lock") as raised:
        encode_payload(graph, TaskSettings("id", "job", 0))
    assert raised.value.operator == "guarded map"
    assert __file__ in raised.value.location
