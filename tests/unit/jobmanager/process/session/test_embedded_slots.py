"""Jobs of one program share the slots of one JVM."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import NotEnoughSlots
from penstock.jobmanager.cluster.embedded_cluster import MAX_SLOTS, EmbeddedCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.runners.runner import Runner


def test_a_refused_rescale_leaves_other_jobs_their_slots() -> None:
    provider, cluster = LocalClusterProvider(), EmbeddedCluster(ClusterConfig())
    one, other = cast(Runner, "one"), cast(Runner, "other")
    ask = partial(provider._make_slots, cluster)
    ask(one, 2)
    cluster.spark.slots.place(one, 2, ["0", "1"])
    with pytest.raises(NotEnoughSlots, match="exceed the limit of 64 slots in one JVM"):
        ask(one, MAX_SLOTS + 1)
    ask(other, 2)
    assert cluster.spark.embedded_slots == 4


def test_the_heap_of_one_jvm_grows_with_the_slots_of_the_first_job() -> None:
    provider, conf = LocalClusterProvider(), Configuration({})
    configs = [ClusterConfig(driver_memory_mb=640, executor_memory_mb=512) for _ in range(3)]
    for config, slots in zip(configs, (1, 4, MAX_SLOTS), strict=True):
        provider._new_cluster(config, conf, slots, one_jvm=True).stop()
    few, some, most = (config.driver_memory_mb for config in configs)
    assert few == some == 640 + 512
    assert most > 10 * few
