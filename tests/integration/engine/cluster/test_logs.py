"""REST serves the logs and prints of functions in workers, with their place in the job and without secrets."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from penstock.common.configuration import Configuration
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark
SECRET = "do-not-show-this"


class Telling(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        logging.getLogger("telling").info("opened")

    def map(self, value: int) -> int:
        logging.getLogger("telling").warning("value %d, key %s", value, SECRET)
        logging.getLogger("telling").debug("too much")
        print(f"printed {value} {SECRET}")
        return value


def _until(read: httpx.Client, paths: list[str], pattern: str) -> tuple[str, str]:
    """Return the first path whose text matches, and the text."""
    deadline = time.monotonic() + 120
    while True:
        for path in paths:
            found = read.get(path)
            if found.is_success and re.search(pattern, found.text):
                return path, found.text
        if time.monotonic() > deadline:
            logs = [path.removesuffix("log") + end for path in paths for end in ("log", "stdout")]
            pytest.fail("\n".join(f"{path}: {read.get(path).text[-4_000:]}" for path in logs))
        time.sleep(0.2)


def test_log_records_of_functions_have_their_place_and_no_secret(executor: EmbeddedExecutor, runner: str) -> None:
    settings = {"penstock.runner": runner, "s3.secret-key": SECRET, "rest.port": "0"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
    env.set_parallelism(1)
    env.from_collection([7]).map(Telling()).name("Tell it").print()
    with executing_on(executor):
        env.execute(f"logs {runner}")
    server = executor.session.serve(Configuration({"rest.port": "0"}))
    assert server is not None
    with httpx.Client(base_url=server.url) as read, contextlib.ExitStack() as at_end:
        at_end.callback(server.stop)
        task_managers = [worker["id"] for worker in read.get("/taskmanagers").json()["taskmanagers"]]
        # The function may have been opened in another worker before, for an epoch without records.
        record = rf"\[logs {runner}: Tell it #0, attempt \d+\]: value 7, key \*{{6}}"
        path, log = _until(read, [f"/taskmanagers/{tm}/log" for tm in task_managers], record)
        assert f" INFO telling [logs {runner}: Tell it #0, attempt " in log
        assert "too much" not in log
        assert "printed" not in log
        _, printed = _until(read, [path.removesuffix("log") + "stdout"], "printed 7")
        assert "printed 7 ******" in printed
