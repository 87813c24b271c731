"""The example works as its page describes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, run
from tools.servers.mongodb import MongoServer

pytestmark = pytest.mark.mongodb
EXAMPLE = EXAMPLES / "mongodb_orders"


def test_orders_are_summed_by_country(mongodb: MongoServer, tmp_path: Path) -> None:
    written = {**os.environ, "MONGODB_URL": mongodb.url}
    subprocess.run([sys.executable, EXAMPLE / "write_orders.py", "480"], env=written, check=True)
    env = environment(tmp_path)
    env.set_parallelism(2)
    job_of("mongodb_orders").build(env, mongodb.url)
    run(env)
    expected: dict[str, dict[str, int]] = {}
    for n in range(480):
        customer = n % 16
        country = ("NL", "BE", "DE")[customer % 3] if customer < 15 else "unknown"
        total = expected.setdefault(country, {"orders": 0, "cents": 0})
        total["orders"] += 1
        total["cents"] += 100 + n
    with mongodb.client() as client:
        found = {total.pop("_id"): total for total in client["shop"]["totals"].find()}
    assert found == expected


def test_the_manifest_starts_the_job_of_the_example() -> None:
    spec = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / spec["job"]["entry"]).exists()
