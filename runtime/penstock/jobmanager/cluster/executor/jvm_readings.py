"""What a JVM of the cluster says of itself (`jvm/Readings.java`): asked for when somebody reads metrics, and not before."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

SOCKET = "readings"
"""In the folder that an executor works in."""
PATIENCE_S = 2.0
MOST_BYTES = 192 * 1024
"""Of what is said: a line for either end of each exchange, some 60 bytes."""


@dataclass(frozen=True)
class ExchangeEnd:
    """What waits in the JVM in front of a task of a level, or behind it. `most`: bytes that may."""

    job_id: str
    level: int
    slot: int
    bytes: int
    most: int
    rows: int | None = None
    """None behind a task, where only bytes are counted."""

    @property
    def usage(self) -> float:
        return self.bytes / self.most if self.most else 0.0

    def metrics(self) -> dict[str, float]:
        """By Flink's names.

        >>> ExchangeEnd("j", 1, 0, bytes=512, most=2048, rows=3).metrics()
        {'inPoolUsage': 0.25, 'inputQueueSize': 512, 'inputQueueLength': 3}
        """
        if self.rows is None:
            return {"outPoolUsage": self.usage, "outputQueueSize": self.bytes}
        return {"inPoolUsage": self.usage, "inputQueueSize": self.bytes, "inputQueueLength": self.rows}


@dataclass(frozen=True)
class JvmReadings:
    """`values`: by Flink's names."""

    values: Mapping[str, float] = field(default_factory=dict)
    exchanges: tuple[ExchangeEnd, ...] = ()

    @staticmethod
    def parse(text: str) -> JvmReadings:
        """Lines that are not understood are left out, such as the last one of a text that was cut.

        >>> found = JvmReadings.parse("Status.JVM.Threads.Count 31\\nin j 1 0 2 64 2048\\nout j 0 0 16 2048\\nStatus.JV")
        >>> found.values["Status.JVM.Threads.Count"], [(end.rows, end.bytes) for end in found.exchanges]
        (31, [(2, 64), (None, 16)])
        >>> found.of_executor()["Status.Shuffle.Netty.UsedMemory"]
        80
        """
        values: dict[str, float] = {}
        ends: list[ExchangeEnd] = []
        for line in text.splitlines():
            with suppress(ValueError):
                match line.split():
                    case ["in", job_id, level, slot, rows, size, most]:
                        ends.append(ExchangeEnd(job_id, int(level), int(slot), int(size), int(most), int(rows)))
                    case ["out", job_id, level, slot, size, most]:
                        ends.append(ExchangeEnd(job_id, int(level), int(slot), int(size), int(most)))
                    case [name, value]:
                        values[name] = float(value) if "." in value else int(value)
        return JvmReadings(values, tuple(ends))

    def of_executor(self) -> dict[str, float]:
        """With what all exchanges of the JVM take up, and may, by the names of Flink's network memory."""
        used, total = sum(end.bytes for end in self.exchanges), sum(end.most for end in self.exchanges)
        return {
            **self.values,
            "Status.Shuffle.Netty.UsedMemory": used,
            "Status.Shuffle.Netty.TotalMemory": total,
            "Status.Shuffle.Netty.AvailableMemory": total - used,
        }


def ask_executor(pid: int) -> str:
    """What the executor with this process id says; empty: it has had no task yet, or does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(f"/proc/{pid}/cwd/{SOCKET}")
            return b"".join(_received(connection)).decode("ascii", "replace")
        except OSError:
            return ""


def _received(connection: socket.socket) -> Iterator[bytes]:
    size = 0
    while size < MOST_BYTES and (data := connection.recv(65536)):
        size += len(data)
        yield data
