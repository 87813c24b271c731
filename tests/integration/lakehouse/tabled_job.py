"""Write generated rows to a table in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.lakehouse.tabled_job FOLDER LAKE COUNT PARALLELISM [MOMENT [keyed]]

MOMENT: when the process kills itself, once, at its third commit: `before` it, `within` it (after the change of
the table), or `after` it. If `keyed` is given, a row replaces or deletes the row with its key.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.common.types import Row, RowKind
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.lakehouse.commits import TableCommitter
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tests.integration.lakehouse.lakes import LAKES

JOB_ID = "1a4e1a4e1a4e1a4e1a4e1a4e1a4e1a4e"
RATE = 1500.0
KEYS = 60


class DyingCommitter:
    """A committer that kills the process at its third commit, unless this has already happened."""

    def __init__(self, folder: Path, moment: str) -> None:
        self._died = folder / f"died-{moment}"
        self._moment = moment
        self._commits = 0
        self._commit, self._commit_once = TableCommitter.commit, TableCommitter._commit_once

    def install(self) -> None:
        TableCommitter.commit = lambda committer, items: self.commit(committer, items)  # type: ignore[assignment, method-assign]
        TableCommitter._commit_once = lambda *arguments: self.commit_once(*arguments)  # type: ignore[method-assign]

    def commit(self, committer: TableCommitter, committables: list[Any]) -> None:
        self._commits += 1
        self._die("before")
        self._commit(committer, committables)
        self._die("after")

    def commit_once(self, committer: TableCommitter, *arguments: Any) -> None:
        log = committer._log
        append, merge = log.append, log.merge

        def torn(*files: Any) -> None:
            append(*files)
            self._die("within")

        def torn_merge(*changes: Any) -> None:
            merge(*changes)
            self._die("within")

        log.append, log.merge = torn, torn_merge  # type: ignore[assignment, method-assign]
        try:
            self._commit_once(committer, *arguments)
        finally:
            log.append, log.merge = append, merge  # type: ignore[method-assign]

    def _die(self, moment: str) -> None:
        if moment == self._moment and self._commits >= 3 and not self._died.exists():
            self._died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def row(index: int) -> dict[str, Any]:
    return {"id": index, "key": f"k{index % 3}"}


def change(index: int) -> Row:
    """Return change n of one of 60 rows. Some changes are deletes, and the last change has the greatest index."""
    kind = RowKind.DELETE if index % 7 == 3 else RowKind.UPDATE_AFTER
    found = Row(index % KEYS, f"k{index}")
    found.set_row_kind(kind)
    return found


def remaining(count: int) -> list[dict[str, Any]]:
    """Return the rows that remain after this many changes."""
    last = {index % KEYS: index for index in range(count)}
    return [{"id": key, "key": f"k{index}"} for key, index in sorted(last.items()) if index % 7 != 3]


def main(folder: str, lake: str, count: str, parallelism: str, moment: str = "", keyed: str = "") -> None:
    if moment:
        DyingCommitter(Path(folder), moment).install()
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
    source = DataGeneratorSource(change if keyed else row, int(count), RATE, splits=1 if keyed else 2)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    table = LAKES[lake](Path(folder))
    if keyed:
        stream.key_by(lambda found: found[0]).sink_to(table.sink(key=["id"], deletes=True)).uid("out")
    else:
        stream.sink_to(table.sink(partition_by=["key"])).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("tabled")


if __name__ == "__main__":
    main(*sys.argv[1:])
