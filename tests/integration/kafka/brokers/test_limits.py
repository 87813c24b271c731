"""Limits of a cluster: the bytes per second of a client, and disk space."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer
from tests.in_process import environment, run
from tests.integration.kafka.running import end_offsets, endless, written
from tests.integration.kafka.support import (
    await_checkpoints,
    counting,
    eventually,
    fill,
    new_name,
    records,
    sink,
    source,
    topic,
    verdict,
)
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka


def test_a_quota_only_slows_a_job_down(tmp_path: Path) -> None:
    properties = {"quota.window.num": "2"}
    with KafkaServer(tmp_path / "kafka", properties=properties) as kafka:
        reads, writes = topic(kafka, 4, "in"), topic(kafka, 3, "out")
        fill(kafka.bootstrap_servers, reads, records(20_000), 4)
        kafka.limit_clients(producer_byte_rate=60_000, consumer_byte_rate=100_000)
        env = environment(tmp_path, **{"restart-strategy.type": "none"})
        env.set_parallelism(2)
        bounded = source(kafka.bootstrap_servers, reads).set_bounded(KafkaOffsetsInitializer.latest())
        counting(env, bounded.build(), sink(kafka.bootstrap_servers, writes).build())
        began = time.monotonic()
        run(env)
        assert time.monotonic() - began > 5
        kafka.limit_clients()
        assert verdict(kafka.bootstrap_servers, writes, 20_000) == ""


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def test_a_broker_whose_disk_is_full_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Mount a small disk, as root. A broker whose only disk has failed shuts down."""
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "none", str(root)], check=True)
    try:
        with KafkaServer(root) as kafka:
            reads, writes, prefix = topic(kafka, 4, "in"), topic(kafka, 3, "out"), new_name("prefix")
            with endless(tmp_path, kafka, reads, writes, prefix) as start:
                process = start(2)
                fill(kafka.bootstrap_servers, reads, records(5_000), 4)
                eventually(lambda: end_offsets(kafka, writes) > 100, 60, "output")
                with pytest.raises(OSError, match="No space left"):
                    fill_up(root / "fill")
                eventually(lambda: not kafka.runs(), 60, "the end of the broker")
                (root / "fill").unlink()
                kafka.restart()
                fill(kafka.bootstrap_servers, reads, records(5_000, 5_000), 4)
                eventually(lambda: written(kafka, writes) >= 10_000, 120, "the rest")
                assert process.poll() is None
                await_checkpoints(tmp_path)
            assert verdict(kafka.bootstrap_servers, writes, 10_000) == ""
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)
