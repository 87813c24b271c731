"""Kafka to Kafka: count a million JSON readings of four partitions by key, with a checkpoint every second.

The measurement excludes the broker. The committed output is read back and compared with the expected output.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.execution import Run, RunFailed, execute
from benchmarks.kafka.outputs import difference, read_outputs
from benchmarks.kafka.pace import RATE, Listener, Pacer
from benchmarks.kafka.systems import COUNTS, LIVE, SYSTEMS, KafkaSystem, chosen
from benchmarks.kafka.topics import PARTITIONS, fill
from benchmarks.readings import Shape
from tools.servers.kafka import KafkaServer

RECORDS = 1_000_000
KEYS = 10_000
WARM_UP_S = 10
_GRACE_S = 2
"""Seconds for the output that was due in the last measured moment."""
GOALS = {"to_flink_sql": 1.0, "to_best_python_peer": 0.7}
GOAL_P50_MS = 25
_BROKER = {"group.initial.rebalance.delay.ms": "3000"}
"""Kafka's default. Members of a group that start together share its partitions from the start."""


def kafka(records: int | None, repetitions: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Measure Penstock exactly once and at least once, Flink SQL with its connector, and the Python peers, in turn."""
    shape = Shape(records or RECORDS, KEYS, 0)
    systems = chosen(SYSTEMS, only)
    runs: dict[str, list[Run]] = {}
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder, _server(folder) as server:
        server.create_topic("in", PARTITIONS)
        expected = fill(server, "in", shape)
        print(f"{shape.records:,} readings are in the topic", file=sys.stderr, flush=True)
        for number in range(repetitions):
            for system in systems:
                if system.name in problems:
                    continue
                try:
                    run = _run_once(server, system, Path(folder, f"{system.name}-{number}"), expected)
                except (RunFailed, OSError, subprocess.CalledProcessError) as error:
                    problems[system.name] = str(error)[-1000:]
                    print(f"{system.name}: {error}", file=sys.stderr, flush=True)
                    continue
                runs.setdefault(system.name, []).append(run)
                print(
                    f"{system.name}: {run.cpu_us:.2f} us of CPU, {run.rate:,.0f} records/s, load {run.load:.1f}, "
                    f"others {run.others:.2f} cores{', wrong: ' + run.result['wrong'] if 'wrong' in run.result else ''}",
                    file=sys.stderr,
                    flush=True,
                )
    figures = {system.name: _figures(system, runs[system.name]) for system in systems if system.name in runs}
    return {
        "records": shape.records,
        "keys": KEYS,
        "systems": figures,
        **ratios(figures),
        "goal": GOALS,
        "problems": problems,
    }


def _server(folder: str) -> KafkaServer:
    return KafkaServer(Path(folder, "broker"), properties=_BROKER)


def _topics(server: KafkaServer, reads: str, writes: str, out: Path) -> list[str]:
    return ["--servers", server.bootstrap_servers, "--reads", reads, "--writes", writes, "--out", str(out)]


def _run_once(server: KafkaServer, system: KafkaSystem, out: Path, expected: npt.NDArray[np.int64]) -> Run:
    """Run one system.

    Raises:
        RunFailed: the program failed, or Penstock's counts are wrong. A peer's wrong result still counts.
    """
    writes = f"out-{out.name}"
    out.mkdir()
    server.create_topic(writes, PARTITIONS)
    command = system.command(_topics(server, "in", writes, out))
    run = execute(command, system.environment(), int(expected.sum()), out / "log.txt")
    outputs = read_outputs(server, writes)
    server.delete_topic(writes)
    run.result["outputs"] = len(outputs.count)
    wrong = difference(outputs, expected, system.output)
    if wrong is not None:
        if system.peer == "penstock":
            raise RunFailed(f"{system.name} gives a wrong result: {wrong}")
        run.result["wrong"] = wrong
    return run


def _figures(system: KafkaSystem, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the medians; µs of CPU per reading."""
    return {
        "guarantee": system.guarantee,
        "output": system.output,
        "cpu_us": round(statistics.median(run.cpu_us for run in runs), 2),
        "jvm_cpu_us": round(statistics.median(run.jvm_cpu_s / run.records * 1e6 for run in runs), 2),
        "records_s": round(statistics.median(run.rate for run in runs)),
        "outputs": round(statistics.median(run.result["outputs"] for run in runs)),
        "load": round(max(run.load for run in runs), 1),
        "others_cores": round(max(run.others for run in runs), 2),
        "wrong": [run.result["wrong"] for run in runs if "wrong" in run.result],
        "runs": [round(run.cpu_us, 2) for run in runs],
    }


def ratios(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the ratios of Penstock's exactly-once cost to Flink SQL's and to the cheapest Python peer's, if these ran.

    Peers that do not emit a count for every reading do other work. `to_best_python_peer` includes them, and another ratio
    excludes them.
    """
    own = figures.get("penstock")
    if own is None:
        return {}
    found: dict[str, Any] = {}
    if "flink-sql" in figures:
        found["to_flink_sql"] = round(own["cpu_us"] / figures["flink-sql"]["cpu_us"], 2)
    peers = [system for system in SYSTEMS if system.python and system.name in figures]
    for suffix, among in (("", peers), ("_of_every_count", [peer for peer in peers if peer.output == COUNTS])):
        if among:
            best = min(among, key=lambda peer: float(figures[peer.name]["cpu_us"])).name
            found[f"best_python_peer{suffix}"] = best
            found[f"to_best_python_peer{suffix}"] = round(own["cpu_us"] / figures[best]["cpu_us"], 2)
    return found


def kafka_latency(records: int | None, repetitions: int, only: Sequence[str] = ()) -> dict[str, Any]:
    """Measure 1,000 readings per second from topic to topic, at least once.

    The latency is the time from before the write of a reading to the read of its count.
    """
    seconds = max(10, (records or 20_000) // RATE)
    systems = chosen(LIVE, only)
    found: dict[str, list[dict[str, float]]] = {}
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder, _server(folder) as server:
        for number in range(repetitions):
            for system in systems:
                if system.name in problems:
                    continue
                try:
                    one = _latencies(server, system, Path(folder, f"{system.name}-{number}"), seconds)
                except (RunFailed, OSError, subprocess.CalledProcessError) as error:
                    problems[system.name] = str(error)[-1000:]
                    continue
                print(f"{system.name}: p50 {one['p50_ms']:.1f} ms, p99 {one['p99_ms']:.1f} ms", file=sys.stderr)
                found.setdefault(system.name, []).append(one)
    medians = {
        name: {key: round(statistics.median(one[key] for one in of_system), 2) for key in of_system[0]}
        for name, of_system in found.items()
    }
    goal = {"p50_ms": GOAL_P50_MS}
    return {"rate": RATE, "seconds": seconds, "systems": medians, "goal": goal, "problems": problems}


def _latencies(server: KafkaServer, system: KafkaSystem, out: Path, seconds: int) -> dict[str, float]:
    """Run one system, and return its latencies.

    Raises:
        RunFailed: the program failed, or more than a hundredth of the counts did not arrive.
    """
    out.mkdir()
    reads, writes = f"in-{out.name}", f"out-{out.name}"
    for name in (reads, writes):
        server.create_topic(name, PARTITIONS)
    duration = str(WARM_UP_S + seconds + _GRACE_S)
    command = [*system.command(_topics(server, reads, writes, out)), "--seconds", duration]
    with Pacer(server, reads), Listener(server, writes) as listener:
        run = execute(command, system.environment(), RATE * seconds, out / "log.txt", keep_moments=True)
    begin = run.result["begin"] + WARM_UP_S
    taken = [1e3 * (at - due) for at, due in listener.arrivals if begin <= due <= begin + seconds]
    if len(taken) < 0.99 * RATE * seconds:
        raise RunFailed(f"{system.name}: only {len(taken)} counts came in {seconds} s")
    p50, p99 = (float(value) for value in np.percentile(taken, [50, 99]))
    return {"p50_ms": p50, "p99_ms": p99, "load": run.load, "cores": run.cpu_s / run.wall_s}
