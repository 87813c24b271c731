"""The example works as its page describes, on a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tests.integration.rabbitmq.queues import Queue, channel_to, config_of
from tools.servers.rabbitmq import RabbitMQServer

pytestmark = pytest.mark.rabbitmq
EXAMPLE = EXAMPLES / "rabbitmq_orders"


def test_orders_are_counted_once_each(rabbitmq: RabbitMQServer, tmp_path: Path) -> None:
    totals = Queue(rabbitmq)
    totals.name = "totals"
    with channel_to(rabbitmq.uri) as channel:
        for name in ("orders", "totals"):
            channel.queue_declare(name, durable=True)
    env = environment(tmp_path)
    env.set_parallelism(2)
    job_of("rabbitmq_orders").build(env, config_of(rabbitmq.uri))
    master = started(env)
    written = {**os.environ, "RABBITMQ_URI": rabbitmq.uri}
    subprocess.run([sys.executable, EXAMPLE / "write_orders.py", "500"], env=written, check=True)
    until(lambda: totals.left() >= 500, master)
    master.request(Operation("cancel"))
    master.wait(30)
    found = [json.loads(body) for _, body in totals.take(totals.left())]
    newest = {total["customer"]: total for total in found}
    assert sum(total["orders"] for total in newest.values()) == 500
    assert len({(total["customer"], total["orders"]) for total in found}) == 500


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
