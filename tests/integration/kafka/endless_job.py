"""Kafka -> keyed state -> Kafka in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.kafka.endless_job FOLDER SERVERS IN OUT PREFIX PARALLELISM [MOMENT [SAVEPOINT]]

MOMENT: when the process kills itself, once: when `half` of a commit is done, or while it aborts transactions that an earlier attempt `left`. SAVEPOINT: the savepoint to start from. FOLDER/request.json has a requested operation. The job deletes it when the operation's
outcome is in FOLDER/answer.json.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from penstock.connectors.kafka.sink.committer import KafkaCommitter
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tests.integration.kafka.support import JOB_ID, counting, sink, source


class DyingCommitter:
    """A committer that kills the process at its third commit, or when it aborts old transactions, unless this has already happened."""

    def __init__(self, folder: Path, moment: str) -> None:
        self._died = folder / f"died-{moment}"
        self._moment = moment
        self._commits = 0
        self._commit, self._fence = KafkaCommitter.commit, KafkaCommitter._fence

    def install(self) -> None:
        KafkaCommitter.commit = lambda committer, items: self.commit(committer, items)  # type: ignore[assignment, method-assign]
        KafkaCommitter._fence = lambda committer, ids: self.fence(committer, ids)  # type: ignore[assignment, method-assign]

    def commit(self, committer: KafkaCommitter, committables: list[Any]) -> None:
        self._commits += 1
        if self._commits >= 3 and self._moment != "left":
            self._commit(committer, committables[:1])
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


def ask(folder: Path, kind: str, **arguments: Any) -> None:
    """Request an operation from the job that runs in this folder."""
    draft = folder / "request.draft"
    draft.write_text(json.dumps({"kind": kind, "arguments": arguments}))
    (folder / "answer.json").unlink(missing_ok=True)
    draft.rename(folder / "request.json")


def answer(folder: Path) -> dict[str, Any] | None:
    """Return the outcome of the request, or None if the job has not answered yet."""
    path = folder / "answer.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def execute_requests(folder: Path, session: Session) -> None:
    """Execute requested operations forever."""
    request, draft = folder / "request.json", folder / "answer.draft"
    while True:
        time.sleep(0.02)
        jobs = session.dispatcher.jobs()
        if not jobs or not request.exists():
            continue
        operation = jobs[0].request(Operation(**json.loads(request.read_text())))
        operation.wait()
        draft.write_text(json.dumps({"location": operation.location, "failure": operation.failure}))
        request.unlink()
        draft.rename(folder / "answer.json")


def main(
    folder: str,
    servers: str,
    reads: str,
    writes: str,
    prefix: str,
    parallelism: str,
    moment: str = "",
    savepoint: str = "",
) -> None:
    for name in ("request.json", "answer.draft"):  # left by a killed process
        (Path(folder) / name).unlink(missing_ok=True)
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
    session = Session(InProcess(), SubmitOptions(job_id=JOB_ID, restore_path=savepoint))
    threading.Thread(target=execute_requests, args=(Path(folder), session), daemon=True).start()
    with executing_on(session):
        env.execute("kafka")
    while any(
        (Path(folder) / name).exists() for name in ("request.json", "answer.draft")
    ):  # it was stopped as asked, and says so
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
