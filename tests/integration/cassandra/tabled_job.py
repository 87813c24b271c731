"""Write generated rows to a table in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.cassandra.tabled_job FOLDER PORT TABLE COUNT PARALLELISM MODE [MOMENT]

MODE: `direct` or `write-ahead`. MOMENT: when the process kills itself, once, at its third checkpoint: `before` it, `within`
it
(rows are sent, nothing is noted), or `after` it. Ten rows share each key, so each key is written ten times and its last number must win.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.cassandra.committer import HeldRowsCommitter
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.connectors.cassandra import CassandraTableSink, ClusterBuilder
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tools.servers.base.server import HOST

JOB_ID = "9057905790579057905790579057905b"
RATE = 1500.0


def dying(folder: Path, moment: str) -> None:
    """End the process at this moment of the third checkpoint, unless it has already been killed in this way."""
    send, commit, times, died = HeldRowsCommitter._send, HeldRowsCommitter.commit, 0, folder / f"died-{moment}"

    def die(here: str) -> None:
        if here == moment and times >= 3 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def sending(committer: HeldRowsCommitter, piece: dict[str, Any]) -> None:
        nonlocal times
        times += 1
        die("before")
        send(committer, piece)
        die("within")

    def committing(committer: HeldRowsCommitter, committables: list[Any]) -> None:
        commit(committer, committables)
        die("after")

    HeldRowsCommitter._send, HeldRowsCommitter.commit = sending, committing  # type: ignore[assignment, method-assign]


def keys_of(count: int) -> int:
    return count // 10


class Numbered:
    def __init__(self, count: int) -> None:
        self.keys = keys_of(count)

    def __call__(self, index: int) -> tuple[int, str]:
        return index % self.keys, str(index)


def main(folder: str, port: str, table: str, count: str, parallelism: str, mode: str, moment: str = "") -> None:
    if moment:
        dying(Path(folder), moment)
    env = environment(
        Path(folder),
        **{
            "execution.checkpointing.interval": "200 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "200 ms",
        },
    )
    env.set_parallelism(int(parallelism))
    source = DataGeneratorSource(Numbered(int(count)), int(count), RATE, splits=1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    sink = CassandraTableSink(
        ClusterBuilder(HOST, int(port)), table, ["id", "key"], write_ahead=mode == "write-ahead", patience=5_000
    )
    stream.key_by(lambda row: row[0]).sink_to(sink).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("tabled")


if __name__ == "__main__":
    main(*sys.argv[1:])
