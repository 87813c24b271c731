"""One measured run of one program in a separate process.

A program prints `RESULT {json}` with `begin` and `end`, the moments (s since the epoch) between which it processed records,
and its other results.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.process_tree import ProcessTree

TIMEOUT_S = 900


class RunFailed(Exception):
    """An error of a program that failed or did not end. The message has the last lines of its output."""


@dataclass(frozen=True)
class Run:
    """The measurements of one run.

    Attributes:
        cpu_s: CPU time of all processes from the first record to the end; jvm_cpu_s: the part of Java processes.
        wall_s: from the first record to the end.
        startup_s: from the start of the process to the first record.
        load: load average at the start of the run.
        others: mean number of cores that other processes of the machine used during the run.
    """

    records: int
    cpu_s: float
    jvm_cpu_s: float
    wall_s: float
    startup_s: float
    peak_mb: float
    load: float
    others: float
    result: dict[str, Any] = field(default_factory=dict)
    memory_mb: list[int] = field(default_factory=list)
    """Memory of all processes, every half second between the first record and the end."""
    workers_mb: list[int] = field(default_factory=list)
    """Memory without the program's process and its driver."""
    processes_mb: dict[str, list[int]] = field(default_factory=dict)
    """Memory of every process, by "role pid"."""
    processes_cores: dict[str, float] = field(default_factory=dict)
    """Number of cores that every process used between the first record and the end, by "role pid"."""

    @property
    def cpu_us(self) -> float:
        """CPU time per record, µs."""
        return self.cpu_s / self.records * 1e6

    @property
    def rate(self) -> float:
        """Records per second of wall-clock time."""
        return self.records / self.wall_s


def execute(
    command: list[str], environment: dict[str, str], records: int, log: Path, *, keep_moments: bool = False
) -> Run:
    """Run a program to its end.

    Args:
        keep_moments: keep `begin` and `end` in the result.

    Raises:
        RunFailed: it failed, or took more than 15 minutes.
    """
    load = os.getloadavg()[0]
    started = time.time()
    returncode, tree = _watched(command, environment, log)
    text = log.read_text(errors="replace").replace("\r", "\n")
    found = re.findall(r"^RESULT (\{.*\})", text, re.MULTILINE)
    if returncode != 0 or not found:
        raise RunFailed(f"{' '.join(command)} ended with {returncode}: ...{text[-1500:]}")
    result = json.loads(found[-1])
    begin, end = result["begin"], result["end"]
    if not keep_moments:
        del result["begin"], result["end"]
    return Run(
        records=records,
        cpu_s=tree.cpu_between(begin, end),
        jvm_cpu_s=tree.jvm_cpu_between(begin, end),
        wall_s=end - begin,
        startup_s=begin - started,
        peak_mb=tree.peak_bytes / 2**20,
        load=load,
        others=tree.others_between(begin, end) / (end - begin),
        result=result,
        memory_mb=[round(size / 2**20) for moment, size in tree.memory if begin <= moment <= end],
        workers_mb=[
            round((size - own) / 2**20)
            for (moment, size), own in zip(tree.memory, tree.coordinator_memory, strict=True)
            if begin <= moment <= end
        ],
        processes_mb={
            name: [round(size / 2**20) for moment, size, _ in seen if begin <= moment <= end]
            for name, seen in tree.by_process.items()
        },
        processes_cores={
            name: (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
            for name, seen in tree.by_process.items()
            if len(inside := [(moment, used) for moment, _, used in seen if begin <= moment <= end]) > 1
        },
    )


def _watched(command: list[str], environment: dict[str, str], log: Path) -> tuple[int | None, ProcessTree]:
    """Run a program to its end or to the timeout. Return its exit code and the measurements of its processes."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True
        )
        tree = ProcessTree(process.pid)
        tree.start()
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
        finally:
            tree.stop()
    return process.returncode, tree
