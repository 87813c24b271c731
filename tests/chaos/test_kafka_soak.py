"""Every kind of fault once, on a job from Kafka to Kafka with three brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.kafka_soak import FAULTS, Soak

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.slow]


def test_no_kind_of_fault_loses_or_repeats_records(tmp_path: Path) -> None:
    found = Soak(tmp_path, seed=7).run(len(FAULTS))
    assert found["problem"] == ""
    assert sum(found["faults"].values()) == len(FAULTS)
