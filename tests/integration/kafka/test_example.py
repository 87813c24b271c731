"""The example works as its page describes, on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tests.integration.kafka.support import read, values_of
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
EXAMPLE = EXAMPLES / "kafka_alerts"


def test_alerts_and_rejected_messages_come_out_once(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as kafka:
        for name, partitions in (("readings", 4), ("alerts", 2), ("rejected", 1)):
            kafka.create_topic(name, partitions)
        servers = kafka.bootstrap_servers
        written = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": servers}
        subprocess.run([sys.executable, EXAMPLE / "write_readings.py", "2000"], env=written, check=True)
        env = environment(tmp_path)
        env.set_parallelism(2)
        job_of("kafka_alerts").build(env, servers)
        master = started(env)
        readings = [m.value() for m in read(servers, "readings") if m.value().startswith(b"{")]
        assert len(readings) == 2000
        until(lambda: len(read(servers, "rejected")) == 1, master)
        assert values_of(read(servers, "rejected"))[0]["value"] == "no reading"
        expected = alerts_of(values_of([m for m in read(servers, "readings") if m.value().startswith(b"{")]))
        assert expected
        until(lambda: len(read(servers, "alerts")) >= len(expected), master)
        assert sorted((a["sensor"], a["time"]) for a in values_of(read(servers, "alerts"))) == expected
        master.request(Operation("cancel"))
        master.wait(30)


def alerts_of(readings: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return the alerts that plain Python computes from the readings. Each sensor's readings are in one partition, in order."""
    hot: dict[str, int] = {}
    found = []
    for reading in readings:
        sensor = reading["sensor"]
        hot[sensor] = hot.get(sensor, 0) + 1 if reading["celsius"] > 30.0 else 0
        if hot[sensor] == 3:
            found.append((sensor, reading["time"]))
    return sorted(found)


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
