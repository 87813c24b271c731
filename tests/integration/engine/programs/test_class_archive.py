"""JVMs start faster with an archive of their classes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from penstock.jobmanager.cluster.jvm.class_archive import jvm_options, make_archive
from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.jobmanager.cluster.local_cluster import LocalCluster
from tests.integration.engine.selfcheck import processes

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_jvm_of_a_cluster_maps_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert not any("SharedArchiveFile" in option for option in jvm_options(find_java()))
    archive = make_archive()
    assert archive.parent == tmp_path / "jvm"
    assert {path.suffix for path in archive.parent.iterdir()} == {".jsa", ".jar"}
    # Use a separate process, because this one may already have another SparkContext.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(all_map, archive).result()


def all_map(archive: Path) -> None:
    cluster = LocalCluster()
    cluster.start()
    try:
        cluster.ensure_slots(1)
        [executor] = cluster.workers.values()
        assert not [p for p in processes.descendants([executor]) if "java" in p.command]
        for pid in (cluster.spark.driver_pid, executor):
            assert str(archive) in Path(f"/proc/{pid}/maps").read_text()
    finally:
        cluster.stop()
