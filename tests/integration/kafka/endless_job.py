"""Kafka -> keyed state -> Kafka in a process of its own, which goes on from its newest checkpoint whenever it is started again.

python -m tests.integration.kafka.endless_job FOLDER SERVERS IN OUT PREFIX PARALLELISM [MOMENT]

MOMENT: where it kills itself, once: `before`, `half` or `after` a commit, or while it aborts what an attempt before it has `left`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tests.integration.kafka.support import JOB_ID, counting, sink, source


class DyingCommitter:
    """What becomes of a process at its third commit, or when it aborts what others have left, unless one has died so before."""

    def __init__(self, folder: Path, moment: str) -> None:
        self._died = folder / f"died-{moment}"
        self._moment = moment
        self._commits = 0
        self._commit, self._fence = KafkaCommitter.commit, KafkaCommitter._fence

    def install(self) -> None:
        KafkaCommitter.commit = lambda committer, items: self.commit(committer, items)  # type: ignore[method-assign]
        KafkaCommitter._fence = lambda committer, ids: self.fence(committer, ids)  # type: ignore[method-assign]

    def commit(self, committer: KafkaCommitter, committables: list[Any]) -> None:
        self._commits += 1
        if self._commits >= 3 and self._moment != "left":
            self._commit(committer, committables[: {"before": 0, "half": 1, "after": len(committables)}[self._moment]])
            self._die()
        self._commit(committer, committables)

    def fence(self, committer: KafkaCommitter, ids: list[str]) -> None:
        if ids and self._moment == "left":
            self._fence(committer, ids[:1])
            self._die()
        self._fence(committer, ids)

    def _die(self) -> None:
        if not self._died.exists():
            self._died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, servers: str, reads: str, writes: str, prefix: str, parallelism: str, moment: str = "") -> None:
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
    counting(env, source(servers, reads).set_group_id(prefix).build(), sink(servers, writes, prefix=prefix).build())
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("kafka")


if __name__ == "__main__":
    main(*sys.argv[1:])
