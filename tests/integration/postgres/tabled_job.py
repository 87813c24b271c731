"""Write generated rows to a table in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.postgres.tabled_job FOLDER CONNINFO TABLE COUNT PARALLELISM [MOMENT]

MOMENT: when the process kills itself, once, at its third commit: `before` it, `within` it (rows are written, the transaction is open), or
`after` it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "9057905790579057905790579057905a"
RATE = 1500.0


def dying(folder: Path, moment: str) -> None:
    """End the process at this moment of the third commit, unless it has already been killed in this way."""
    commit, write, commits, died = PostgresCommitter.commit, PostgresCommitter._write, 0, folder / f"died-{moment}"

    def die(here: str) -> None:
        if here == moment and commits >= 3 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def committing(committer: PostgresCommitter, committables: list[Any]) -> None:
        nonlocal commits
        commits += 1
        die("before")
        commit(committer, committables)
        die("after")

    def writing(committer: PostgresCommitter, *arguments: Any) -> None:
        write(committer, *arguments)
        die("within")

    PostgresCommitter.commit, PostgresCommitter._write = committing, writing  # type: ignore[assignment, method-assign]


def row(index: int) -> dict[str, Any]:
    return {"id": index, "key": f"k{index % 3}"}


def main(folder: str, conninfo: str, table: str, count: str, parallelism: str, moment: str = "") -> None:
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
    source = DataGeneratorSource(row, int(count), RATE, splits=2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.sink_to(PostgresSink(conninfo, table, {"id": int, "key": str})).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("tabled")


if __name__ == "__main__":
    main(*sys.argv[1:])
