"""A started cluster whose slots several processes of this machine use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.jobmanager.cluster.spark_cluster import SparkCluster


@dataclass
class SharedCluster:
    """Cluster that this process has started.

    Attributes:
        more_slots: function that starts workers until that many slots exist. None means that workers are started elsewhere.
    """

    spark: SparkCluster
    more_slots: Callable[[int], object] | None = None
