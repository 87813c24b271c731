"""Tests of jobs and operators without Spark, in one process, on a clock that the test moves. See docs/testing.md.

`JobHarness` runs a whole program as the engine does. `OperatorHarness` runs one operator alone. Push `CRASH` into a source to let
the job fail over when it reads the mark.
"""

from __future__ import annotations

from penstock.testing.job_harness import CRASH, JobHarness
from penstock.testing.operator_harness import OperatorHarness, OperatorHarnessSnapshot
from penstock.testing.snapshot import JobSnapshot

__all__ = ["CRASH", "JobHarness", "JobSnapshot", "OperatorHarness", "OperatorHarnessSnapshot"]
