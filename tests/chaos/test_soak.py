"""A short soak with each runner; `python -m tests.chaos.soak` is the long one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.soak import Soak

if TYPE_CHECKING:
    from tools.s3server import S3Server

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 30.0


def test_random_faults(runner: str, tmp_path: Path, s3: S3Server) -> None:
    backend = "rocksdb" if runner == "pipelined" else "hashmap"
    report = Soak(runner, random.randrange(1 << 32), SECONDS, tmp_path, s3=s3, backend=backend).run()
    print(report)
    assert not report.problems, str(report)
    assert sum(report.faults.values()) >= 2, "a run in which nothing happened shows nothing"
