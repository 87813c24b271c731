"""A worker whose answers to probes the test controls."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.jobmanager.cluster.worker_health import WorkerHealth

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class ProbeAnswers:
    """The answers of the worker."""

    alive: bool = True
    ready: bool = False


@contextmanager
def answering(answers: ProbeAnswers) -> Iterator[WorkerHealth]:
    """Start a server that answers probes at `port` until the end of the block."""
    server = WorkerHealth(0, lambda: answers.alive, lambda: answers.ready).start()
    try:
        yield server
    finally:
        server.stop()
