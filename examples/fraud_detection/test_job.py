"""Tests in one process, without Spark. The test moves event time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job import Alert, Payment, Rule, build

from penstock.testing import JobHarness

RULE = Rule("test payment", 0, small=5, large=500, within=10_000)


@pytest.fixture
def job() -> Iterator[JobHarness]:
    with JobHarness(parallelism=2) as harness:
        harness.collect(build(harness.source("payments"), harness.source("rules")), "alerts")
        yield harness


def pay(job: JobHarness, *payments: Payment) -> None:
    for payment in payments:
        job.push("payments", payment, timestamp=payment.time)


def advance(job: JobHarness, time: int) -> None:
    for source in ("payments", "rules"):
        job.advance_watermark(source, time)


def test_a_large_payment_soon_after_a_small_one_is_an_alert(job: JobHarness) -> None:
    job.push("rules", RULE, timestamp=0)
    pay(job, Payment("ann", 1_000, 5), Payment("bob", 2_000, 500), Payment("ann", 11_000, 500))
    advance(job, 11_000)
    assert job.outputs("alerts") == [Alert("test payment", "ann", 500, 11_000)]


@pytest.mark.parametrize(
    "second", [Payment("ann", 2_000, 499), Payment("ann", 11_001, 500), Payment("eve", 2_000, 500)]
)
def test_other_payments_are_no_alerts(job: JobHarness, second: Payment) -> None:
    job.push("rules", RULE, timestamp=0)
    pay(job, Payment("ann", 1_000, 5), second)
    advance(job, 20_000)
    assert job.outputs("alerts") == []


def test_a_payment_waits_for_the_rule_of_its_time(job: JobHarness) -> None:
    pay(job, Payment("ann", 1_000, 5), Payment("ann", 2_000, 350), Payment("ann", 6_000, 350))
    job.advance_watermark("payments", 6_000)
    job.push("rules", RULE, timestamp=0)
    job.push("rules", RULE._replace(time=5_000, large=300), timestamp=5_000)
    assert job.outputs("alerts") == []
    job.advance_watermark("rules", 6_000)
    assert job.outputs("alerts") == [Alert("test payment", "ann", 350, 6_000)]


def test_rules_and_payments_survive_a_crash_and_a_rescale(job: JobHarness) -> None:
    job.push("rules", RULE, timestamp=0)
    pay(job, Payment("ann", 1_000, 5))
    advance(job, 1_000)
    job.snapshot()
    job.crash()
    job.rescale(3)
    pay(job, Payment("ann", 2_000, 900))
    advance(job, 2_000)
    assert job.outputs("alerts") == [Alert("test payment", "ann", 900, 2_000)]
