"""A single exchange for tests."""

from __future__ import annotations

from penstock.graph.job_graph import ExchangeSpec
from penstock.graph.transformation import Partitioning

MAX_PARALLELISM = 128


def exchange(partitioning: Partitioning, parallelism: int) -> ExchangeSpec:
    """Return an exchange from one sender to `parallelism` receivers."""
    return ExchangeSpec(
        id=0,
        source_stage=0,
        side_tag=None,
        level=1,
        partitioning=partitioning,
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
        source_parallelism=1,
    )
