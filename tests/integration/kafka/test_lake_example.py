"""The example from Kafka into an Iceberg table works as its page describes, on a real broker."""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from penstock.jobmanager.job.requests import Operation
from tests.examples import EXAMPLES, job_of
from tests.in_process import environment, started, until
from tests.integration.kafka.support import fill
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka
EXAMPLE = EXAMPLES / "kafka_lake"
MINUTE_MS = 60_000
BEGIN = 1_700_000_040_000 // MINUTE_MS * MINUTE_MS


def readings(minutes: int) -> list[dict[str, Any]]:
    """Return one reading per second of each of five sensors, ordered by time."""
    moments = range(BEGIN, BEGIN + minutes * MINUTE_MS, 1000)
    return [
        {"sensor": f"s{n}", "time": t + n, "celsius": (t // 1000 * 7 + n) % 40 / 2} for t in moments for n in range(5)
    ]


def rows_of(written: list[dict[str, Any]]) -> list[tuple[str, datetime, float, float, int]]:
    """Return the rows that plain Python computes. The table has times without a zone."""
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    for reading in written:
        values[reading["sensor"], reading["time"] // MINUTE_MS * MINUTE_MS].append(reading["celsius"])
    return sorted(
        (
            sensor,
            datetime.fromtimestamp(start / 1000, UTC).replace(tzinfo=None),
            sum(found) / len(found),
            max(found),
            len(found),
        )
        for (sensor, start), found in values.items()
    )


def test_each_minute_is_in_the_table_once(tmp_path: Path) -> None:
    module = job_of("kafka_lake")
    properties = module.catalog_of(str(tmp_path / "lake"), "")
    catalog = load_catalog(**properties)

    def in_the_table() -> list[tuple[Any, ...]]:
        try:
            found = catalog.load_table(module.TABLE).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return sorted(tuple(row[name] for name in module.FIELDS) for row in found)

    with KafkaServer(tmp_path / "kafka") as kafka:
        kafka.create_topic("readings", 3)
        servers = kafka.bootstrap_servers
        written = readings(minutes=6)
        fill(servers, "readings", [*written[:900], b"no reading", *written[900:]], partitions=3)
        # Late messages end the last minute in every partition.
        fill(servers, "readings", [{"sensor": "late", "time": BEGIN + 7 * MINUTE_MS, "celsius": 0.0}] * 3, partitions=3)
        env = environment(tmp_path)
        env.set_parallelism(2)
        module.build(env, servers, properties)
        master = started(env)
        until(lambda: in_the_table() == rows_of(written), master)
        master.request(Operation("cancel"))
        master.wait(30)


def test_the_manifest_and_the_files_of_its_image_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = yaml.safe_load((EXAMPLE / "flinkjob.yaml").read_text())["spec"]
    assert (EXAMPLE / manifest["job"]["entry"]).exists()
    template = manifest["podTemplate"]["spec"]
    assert template["containers"][0]["volumeMounts"][0]["mountPath"] == str(Path(manifest["job"]["args"][3]).parent)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "job", raising=False)
    assert importlib.import_module("read_table").TABLE == "weather.minutes"
    del sys.modules["job"], sys.modules["read_table"]
