"""Measures in addition to the workloads. Each is a function (records or None, repetitions) -> figures.

Functions that compare systems also take the names of some systems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measures.backpressure import backpressure
from benchmarks.measures.checkpoint import checkpoint
from benchmarks.measures.cores import cores
from benchmarks.measures.epoch import epoch
from benchmarks.measures.jobmanagers.failover import failover
from benchmarks.measures.jobmanagers.heap import heap
from benchmarks.measures.jobmanagers.slots import jobmanager
from benchmarks.measures.kafka import kafka, kafka_latency
from benchmarks.measures.large_state import large_state
from benchmarks.measures.live import latency, memory, recovery, rescale
from benchmarks.measures.load import load
from benchmarks.measures.metrics import metrics
from benchmarks.measures.operator import operator
from benchmarks.measures.operators import operators
from benchmarks.measures.session import session
from benchmarks.measures.small import small
from benchmarks.measures.startup import startup

Measure = Callable[[int | None, int], dict[str, Any]]
Comparison = Callable[[int | None, int, Sequence[str]], dict[str, Any]]

MEASURES: dict[str, Measure] = {
    "epoch": epoch,
    "latency": latency,
    "load": load,
    "cores": cores,
    "checkpoint": checkpoint,
    "rescale": rescale,
    "recovery": recovery,
    "failover": failover,
    "memory": memory,
    "startup": startup,
    "session": session,
    "operator": operator,
    "operators": operators,
    "backpressure": backpressure,
    "jobmanager": jobmanager,
    "heap": heap,
    "large-state": large_state,
    "small": small,
    "metrics": metrics,
}
COMPARISONS: dict[str, Comparison] = {"kafka": kafka, "kafka-latency": kafka_latency}
