"""Shared fixtures of the tests of the development tools: one small image, and one cluster for all tests that only use it."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tools.devcluster import Cluster, plan, store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSYBOX = "localhost/busybox:1"


@pytest.fixture(scope="session")
def busybox_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a docker archive of an image that has only busybox, from its Debian package."""
    scratch = tmp_path_factory.mktemp("busybox")
    fetch = ["apt-get", "download", "--quiet", "busybox-static"]
    if subprocess.run(fetch, cwd=scratch, check=False, capture_output=True).returncode:
        subprocess.run(["apt-get", "update", "--quiet"], check=True, capture_output=True)
        subprocess.run(fetch, cwd=scratch, check=True, capture_output=True)
    subprocess.run(["dpkg-deb", "-x", next(scratch.glob("*.deb")), scratch], check=True)
    archive = scratch / "busybox.tar"
    archive.write_bytes(store.program_image(BUSYBOX, scratch / "bin" / "busybox"))
    return archive


@pytest.fixture(scope="session")
def cluster(busybox_archive: Path) -> Iterator[Cluster]:
    """Start a cluster with a node and the busybox image. Tests may use it, but not stop it."""
    with Cluster("tools-test") as running:
        running.load(busybox_archive)
        yield running
    shutil.rmtree(plan.image_root("tools-test"), ignore_errors=True)
