"""The example works as its page describes, on a real ElasticMQ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tests.integration.sqs.queues import Queue
from tools.servers.sqs import KEYS, SqsServer

pytestmark = pytest.mark.sqs
EXAMPLE = EXAMPLES / "sqs_payments"


def test_each_failed_payment_is_counted_once(sqs: SqsServer, tmp_path: Path) -> None:
    written = {**os.environ, **KEYS, "AWS_ENDPOINT_URL_SQS": sqs.url}
    subprocess.run([sys.executable, EXAMPLE / "write_payments.py", "700"], env=written, check=True)
    env = environment(tmp_path)
    env.set_parallelism(2)
    job_of("sqs_payments").build(env, f"{sqs.url}/000000000000")
    failed = Counter(f"c{n % 20}" for n in range(0, 700, 7))
    expected = [(customer, number) for customer, most in failed.items() for number in range(3, most + 1)]
    alerts = Queue(sqs.url, "alerts.fifo")
    master = started(env)
    until(lambda: alerts.left[0] >= len(expected), master)
    master.request(Operation("cancel"))
    master.wait(30)
    found = [json.loads(message["Body"]) for message in alerts.read()]
    assert sorted((alert["customer"], alert["failed"]) for alert in found) == sorted(expected)
    for customer in failed:
        numbers = [alert["failed"] for alert in found if alert["customer"] == customer]
        assert numbers == sorted(numbers)


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
