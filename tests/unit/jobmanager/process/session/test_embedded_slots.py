"""Jobs of one program share the slots of one JVM."""

from __future__ import annotations

from functools import partial
from typing import cast

import pytest

from penstock.common.config.memory import DEFAULT_DRIVER_HEAP, DEFAULT_HEAP, MIB
from penstock.common.errors import NotEnoughSlots
from penstock.jobmanager.cluster.embedded_cluster import MAX_SLOTS, EmbeddedCluster
from penstock.jobmanager.cluster.spark_settings import ClusterConfig
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.process.session.local_clusters import ClusterNeeds, new_local_cluster
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
    heaps = []
    for slots in (1, 4, MAX_SLOTS):
        cluster = new_local_cluster(JobSettings.from_configuration({}), ClusterNeeds(slots))
        heaps.append(cluster.spark.config.driver_memory_mb)
        cluster.stop()
    few, some, most = heaps
    assert few == some == (DEFAULT_DRIVER_HEAP + DEFAULT_HEAP) // MIB
    assert most > 10 * few
