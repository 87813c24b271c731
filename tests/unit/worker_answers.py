"""A worker that answers probes as a test tells it to."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.jobmanager.cluster.worker_health import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Told:
    """What it says of itself."""

    alive: bool = True
    ready: bool = False


@contextmanager
def answering(told: Told) -> Iterator[WorkerHealth]:
    """It answers at `port`, until the end."""
    server = WorkerHealth(0, lambda: told.alive, lambda: told.ready).start()
    try:
        yield server
    finally:
        server.stop()
