"""A FlinkJob that reads Kafka follows its load: workers come and go, `kubectl scale` is refused, and no record is lost or repeated."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from confluent_kafka import Producer

from tests.e2e import images
from tests.e2e.flinkjob import Job
from tests.e2e.stack import Stack, wait_until
from tools.devcluster.cluster import KubectlFailed
from tools.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.s3,
    pytest.mark.timeout(1500, func_only=True),
]

SCRIPT = """
import sys
import time

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

servers, output = sys.argv[1:]


def slow(value):
    time.sleep(0.01)
    return {"number": value["number"]}


env = StreamExecutionEnvironment.get_execution_environment()
source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics("numbers").set_group_id("autoscaled")
source = source.set_starting_offsets(KafkaOffsetsInitializer.earliest())
source = source.set_value_only_deserializer(JsonLinesFormat()).build()
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
every_checkpoint = RollingPolicy.on_checkpoint_rolling_policy()
sink = FileSink.for_row_format(output, JsonLinesEncoder()).with_rolling_policy(every_checkpoint).build()
numbers.rebalance().map(slow).name("slow").uid("slow").sink_to(sink).uid("output")
env.execute("autoscaled")
"""
PARTITIONS = 8
RATE = 40.0
"""Records per second at the start. A subtask can process at most 100 of them."""
RIGHT = range(2, 6)
"""Parallelism for three times the rate: 120 records per second are a load of 0.7 at two subtasks on an idle machine."""
RESCALE_GOAL, LAG_GOAL = 120.0, 300.0


class Load:
    """A generator of numbers at a rate that a test changes."""

    def __init__(self, servers: str) -> None:
        self.rate, self.sent = RATE, 0
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due, before = 0.0, time.monotonic()
        while not self._is_over.wait(0.05):
            now = time.monotonic()
            due, before = due + self.rate * (now - before), now
            while self.sent < due:
                self._producer.produce("numbers", json.dumps({"number": self.sent}), partition=self.sent % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def stop(self) -> int:
        """Stop, and return how many numbers were sent."""
        self._is_over.set()
        self._thread.join()
        return self.sent


@pytest.fixture
def kafka(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), host=stack.cluster.host_address) as server:
        server.create_topic("numbers", PARTITIONS)
        yield server


@pytest.fixture
def job(stack: Stack, kafka: KafkaServer) -> Iterator[Job]:
    settings = {
        "job.autoscaler.stabilization.interval": "2 s",
        "job.autoscaler.catch-up.duration": "1 min",
        "penstock.autoscaler.pause-budget": 0.05,
    }
    limits = {"enabled": True, "max": 5, "window": "20s", "scaleDownAfter": "60s", "maxLag": "10s"}
    made = Job(stack, "autoscaled", parallelism=1, spec={"autoscaling": limits, "configuration": settings})
    spec = made.manifest["spec"]
    spec["image"] = images.KAFKA
    spec["job"] = {"script": SCRIPT, "args": [kafka.bootstrap_servers, f"{made.folder}/output"], "parallelism": 1}
    yield made.apply()
    made.delete()


def written(job: Job) -> list[int]:
    """Return all numbers in the output."""
    files, path = fsspec.core.url_to_fs(f"{job.folder}/output", **job.stack.s3.storage_options())
    files.invalidate_cache()
    found = [name for name in files.find(path) if not Path(name).name.startswith((".", "_"))]
    texts: dict[str, bytes] = files.cat(found) if found else {}
    return [json.loads(line)["number"] for text in texts.values() for line in text.splitlines()]


def rescales(job: Job) -> list[str]:
    return [event for event in job.events() if event.startswith("Autoscaled:")]


def autoscaler(job: Job) -> dict[str, Any]:
    return dict(job.status.get("autoscaling") or {})


def test_the_job_follows_its_load_and_loses_and_repeats_nothing(stack: Stack, job: Job, kafka: KafkaServer) -> None:
    load = Load(kafka.bootstrap_servers)
    try:
        job.wait_for(phase="Running", parallelism=1, workers=1)
        wait_until(lambda: written(job), lambda: job.describe_missing("output"), seconds=120)
        spec = job.object["spec"]
        _only_the_autoscaler_sets_the_parallelism(job)
        wait_until(
            lambda: autoscaler(job).get("reason") == "WITHIN_TARGET",
            lambda: job.describe_missing("a steady load"),
            seconds=300,
        )
        assert rescales(job) == []
        incarnation = job.status["jobId"]
        _without_room_it_keeps_its_size(job, load)
        began = time.monotonic()
        wait_until(
            lambda: job.status["parallelism"] in RIGHT,
            lambda: job.describe_missing("the right size"),
            seconds=RESCALE_GOAL,
        )
        took = time.monotonic() - began
        wait_until(
            lambda: len(written(job)) > load.sent - 10 * load.rate,
            lambda: job.describe_missing("no lag"),
            seconds=LAG_GOAL,
        )
        caught_up = time.monotonic() - began
        up = rescales(job)
        assert len(up) <= 2, up
        load.rate = RATE / 2
        wait_until(
            lambda: job.status["parallelism"] == 1 and len(job.pods("worker")) == 1,
            lambda: job.describe_missing("one worker"),
            seconds=400,
        )
        sent = load.stop()
        wait_until(lambda: len(written(job)) >= sent, lambda: job.describe_missing(f"{sent} numbers"), seconds=120)
    finally:
        load.stop()
    counts = Counter(written(job))
    assert sorted(counts) == list(range(sent))
    assert set(counts.values()) == {1}
    status = job.status
    assert (status["jobId"], status["restarts"]) == (incarnation, 0)
    assert job.object["spec"] == spec, "the operator writes nothing into the spec"
    stack.report.append(
        f"load x 3 on Kafka: right size after {took:.0f} s and {len(up)} rescales, lag gone after {caught_up:.0f} s, "
        f"{len(rescales(job))} rescales in all"
    )


def _only_the_autoscaler_sets_the_parallelism(job: Job) -> None:
    for change in (lambda: job.scale(3), lambda: job.patch_job(parallelism=3)):
        with pytest.raises(KubectlFailed, match="the autoscaler sets the parallelism"):
            change()
    with pytest.raises(KubectlFailed, match="must not be greater than job"):
        job.patch(autoscaling={"max": 200})
    with pytest.raises(KubectlFailed, match="min must not be greater than max"):
        job.patch(autoscaling={"min": 9})


def _without_room_it_keeps_its_size(job: Job, load: Load) -> None:
    """Let the load grow while no node accepts pods."""
    kubectl = job.stack.cluster.kubectl
    nodes = kubectl("get", "nodes", "-o", "name").split()
    kubectl("cordon", *nodes)
    try:
        load.rate = 3 * RATE
        wait_until(
            lambda: job.condition("AutoscalingLimited").get("reason") == "Unschedulable",
            lambda: job.describe_missing("AutoscalingLimited"),
            seconds=180,
        )
        status = job.status
        assert (status["parallelism"], status["phase"]) == (1, "Running")
        assert job.condition("Ready", status)["status"] == "True"
        assert rescales(job) == []
    finally:
        kubectl("uncordon", *nodes)
