"""The metrics of a JVM of the cluster (`jvm/Readings.java`). They are read only when a client requests metrics."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

SOCKET = "readings"
"""Name of the socket in the executor's working directory."""
PATIENCE_S = 2.0
MAX_BYTES = 192 * 1024
"""Maximum size of the response, in bytes. It has a line of about 60 bytes for either end of each exchange."""


@dataclass(frozen=True)
class ExchangeEnd:
    """Buffer of an exchange in the JVM, on the input side or the output side of a task of a level. `most` is its capacity in bytes."""

    job_id: str
    level: int
    slot: int
    bytes: int
    most: int
    rows: int | None = None
    """Number of buffered rows. None on the output side, which counts only bytes."""

    @property
    def usage(self) -> float:
        return self.bytes / self.most if self.most else 0.0

    def metrics(self) -> dict[str, float]:
        """Return the metrics under Flink's names.

        >>> ExchangeEnd("j", 1, 0, bytes=512, most=2048, rows=3).metrics()
        {'inPoolUsage': 0.25, 'inputQueueSize': 512, 'inputQueueLength': 3}
        """
        if self.rows is None:
            return {"outPoolUsage": self.usage, "outputQueueSize": self.bytes}
        return {"inPoolUsage": self.usage, "inputQueueSize": self.bytes, "inputQueueLength": self.rows}


@dataclass(frozen=True)
class JvmReadings:
    """Metrics of a JVM. The keys of `values` are Flink's names."""

    values: Mapping[str, float] = field(default_factory=dict)
    exchanges: tuple[ExchangeEnd, ...] = ()

    @staticmethod
    def parse(text: str) -> JvmReadings:
        """Parse the metrics. Lines with an unknown format are skipped, such as the last line of a truncated text.

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
        """Return the metrics, with the used and the maximum memory of all exchanges under Flink's names of the network memory."""
        used, total = sum(end.bytes for end in self.exchanges), sum(end.most for end in self.exchanges)
        return {
            **self.values,
            "Status.Shuffle.Netty.UsedMemory": used,
            "Status.Shuffle.Netty.TotalMemory": total,
            "Status.Shuffle.Netty.AvailableMemory": total - used,
        }


def request_readings(pid: int) -> str:
    """Return the metrics of the executor with this process id. An empty text means that the executor has had no task yet, or does not
    respond.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(f"/proc/{pid}/cwd/{SOCKET}")
            return b"".join(_received(connection)).decode("ascii", "replace")
        except OSError:
            return ""


def _received(connection: socket.socket) -> Iterator[bytes]:
    size = 0
    while size < MAX_BYTES and (data := connection.recv(65536)):
        size += len(data)
        yield data
