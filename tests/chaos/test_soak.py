"""A short soak with each runner and every kind of fault once. `python -m tests.chaos.soak` is the long one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.faults.storage_proxy import StorageProxy
from tests.chaos.kafka_ends import BROKERS
from tests.chaos.report import dumps
from tests.chaos.soak import Soak
from tools.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from tools.servers.s3 import S3Server

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

SECONDS = 600.0
"""Maximum seconds. The soak ends earlier, when every kind was done."""
BACKEND_OF = {"pipelined": "rocksdb", "batched": "hashmap"}


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[StorageProxy]:
    with StorageProxy(s3.endpoint_url) as proxy:
        yield proxy


@pytest.mark.kafka
def test_every_kind_of_fault_from_kafka_to_kafka_keeps_the_output_exact(
    runner: str, tmp_path: Path, s3: S3Server, proxy: StorageProxy
) -> None:
    with KafkaServer(tmp_path / "kafka", BROKERS) as kafka:
        soak = Soak(
            runner,
            BACKEND_OF[runner],
            random.randrange(1 << 32),
            SECONDS,
            tmp_path,
            s3,
            proxy,
            once=True,
            checkpoint_timeout_s=15,
            kafka=kafka,
        )
        report = soak.run()
    print(dumps(report.to_json()))
    assert not report.problems, str(report)
    assert report.details["kinds not done"] == [], str(report)
    assert report.left_behind["open transactions"] == []


def test_every_kind_of_fault_keeps_the_output_exact(
    runner: str, tmp_path: Path, s3: S3Server, proxy: StorageProxy
) -> None:
    seed = random.randrange(1 << 32)
    report = Soak(
        runner,
        BACKEND_OF[runner],
        seed,
        SECONDS,
        tmp_path,
        s3,
        proxy,
        once=True,
        checkpoint_timeout_s=15,
    ).run()
    print(dumps(report.to_json()))
    assert not report.problems, str(report)
    assert report.details["kinds not done"] == [], str(report)
