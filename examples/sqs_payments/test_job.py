"""Tests in one process, without SQS."""

from __future__ import annotations

from job import Alert, Failures, Payment

from penstock.testing import JobHarness


def test_the_third_failure_and_each_later_one_cause_an_alert_also_after_a_crash() -> None:
    failure = Payment("c1", 1250, ok=False)
    with JobHarness(parallelism=2) as harness:
        payments = harness.source("payments", type_info=Payment)
        harness.collect(payments.key_by("customer").process(Failures(), output_type=Alert), "alerts")
        harness.push("payments", failure, failure, Payment("c2", 5, ok=False))
        harness.snapshot()
        harness.crash()
        harness.push("payments", Payment("c1", 5, ok=True))
        assert harness.take("alerts") == []
        harness.push("payments", failure, failure)
        assert harness.take("alerts") == [Alert("c1", 3), Alert("c1", 4)]
