"""The cost of reading a job's metrics: W2 with a request for Prometheus' page every second, compared with no requests.

Metrics are counted whether or not they are read. Most of them are computed from counts only on request. One request per second
is fifteen times Prometheus' default. Runs take turns, and the result compares medians.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import httpx

from benchmarks.comparison import SYSTEMS, run_once
from benchmarks.execution import Run
from benchmarks.readings import Shape

_EVERY_S = 1.0
_PROMETHEUS_S = 15.0
"""Seconds between two requests of Prometheus by default."""


def metrics(records: int | None, repetitions: int) -> dict[str, Any]:
    shape = Shape(records or 5_000_000, 1000, 5000)
    system = next(system for system in SYSTEMS if system.name == "penstock-functions")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    system = replace(
        system,
        arguments=(*system.arguments, "--setting", f"rest.port={port}", "--setting", "security.rest.local-token=false"),
    )
    runs: dict[str, list[Run]] = {"nobody-reads": [], "read-every-second": []}
    pages: list[int] = []
    for _ in range(repetitions):
        runs["nobody-reads"].append(run_once(system, "w2", shape))
        with _reading(f"http://127.0.0.1:{port}/metrics", pages):
            runs["read-every-second"].append(run_once(system, "w2", shape))
    costs = {name: median(run.cpu_us for run in found) for name, found in runs.items()}
    ratio = costs["read-every-second"] / costs["nobody-reads"]
    return {
        "records": shape.records,
        "cpu_us_per_record": {name: round(cost, 3) for name, cost in costs.items()},
        "all_cpu_us_per_record": {name: [round(run.cpu_us, 3) for run in found] for name, found in runs.items()},
        "pages_read": len(pages),
        "lines_of_a_page": max(pages, default=0),
        "ratio": round(ratio, 3),
        "ratio_at_prometheus_default": round(1 + (ratio - 1) * _EVERY_S / _PROMETHEUS_S, 4),
        "goal": 1.02,
        "problems": [] if pages else ["no page was read"],
    }


@contextmanager
def _reading(url: str, pages: list[int]) -> Iterator[None]:
    """Record how many lines each page has."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(_EVERY_S):
            try:
                answer = httpx.get(url, timeout=10)
            except httpx.TransportError:
                continue  # the job has not started, or has ended
            if answer.is_success:
                pages.append(answer.text.count("\n"))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
