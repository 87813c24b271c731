"""The example works as its page describes, on a kinesis-mock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.datastream.formats.json import JsonLinesFormat
from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tests.integration.kinesis.streams import Stream
from tools.servers.kinesis import KEYS, KinesisServer

pytestmark = pytest.mark.kinesis
EXAMPLE = EXAMPLES / "kinesis_readings"


def test_means_of_all_complete_windows_are_written(kinesis: KinesisServer, tmp_path: Path) -> None:
    written = {**os.environ, **KEYS, "AWS_ENDPOINT_URL_KINESIS": kinesis.url}
    subprocess.run([sys.executable, EXAMPLE / "write_readings.py", "1000"], env=written, check=True)
    env = environment(tmp_path)
    env.set_parallelism(2)
    job = job_of("kinesis_readings")
    job.build(env, {"aws.endpoint": kinesis.url})
    master = started(env)
    last = 1764000000000 + 250 * 999 - 1000  # the watermark is a second behind
    expected: dict[tuple[str, int], list[float]] = {}
    for n in range(1000):
        begin = (1764000000000 + 250 * n) // 10_000 * 10_000
        if begin + 10_000 <= last - 2_000:  # each shard has a separate watermark, which may end a little earlier
            expected.setdefault((f"s{n % 5}", begin), []).append(20 + n % 7 / 2)
    means = Stream(kinesis.url, "means")
    schema = JsonLinesFormat({"sensor": str, "begin": int, "readings": int, "celsius": float})
    until(lambda: len(means.values(len(expected), means.source(schema=schema), patience=3)) >= len(expected), master)
    master.request(Operation("cancel"))
    master.wait(30)
    found = {
        (row["sensor"], row["begin"]): row for row in means.values(10_000, means.source(schema=schema), patience=3)
    }
    for window, values in expected.items():
        assert found[window]["readings"] == len(values)
        assert found[window]["celsius"] == pytest.approx(sum(values) / len(values), abs=0.001)


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
