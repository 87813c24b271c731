"""A stream -> keyed state -> another stream, in a separate process, which continues from its newest checkpoint each time it is started
again.

python -m tests.integration.redis.streamed_job FOLDER URL IN OUT PARALLELISM [MOMENT]

MOMENT: when the process kills itself, once, at its third commit: `before` it, `within` it (some of its entries are added), or `after` it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.redis.committer import RedisCommitter
from penstock.datastream.connectors.redis import RedisSink, RedisStreamSink, RedisStreamSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "9057905790579057905790579057905c"


def dying(folder: Path, moment: str) -> None:
    """End the process at this moment of the third commit, unless it has already been killed in this way."""
    commit, add, commits, died = RedisCommitter.commit, RedisCommitter._add, 0, folder / f"died-{moment}"

    def die(here: str) -> None:
        if here == moment and commits >= 3 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def committing(committer: RedisCommitter, committables: list[Any]) -> None:
        nonlocal commits
        commits += 1
        die("before")
        commit(committer, committables)
        die("after")

    def adding(committer: RedisCommitter, *arguments: Any) -> int:
        done = add(committer, *arguments)
        die("within")
        return done

    RedisCommitter.commit, RedisCommitter._add = committing, adding  # type: ignore[assignment, method-assign]


def main(folder: str, url: str, reads: str, writes: str, parallelism: str, moment: str = "") -> None:
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
    env.set_max_parallelism(4)
    source = RedisStreamSource(url, reads)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    ids = stream.map(lambda entry: int(entry.fields["id"])).uid("ids").key_by(lambda number: number % 10)
    told = ids.map(lambda number: {"id": number}).uid("told")
    told.sink_to(RedisStreamSink(url, writes, lambda record: record, batch_size=20)).uid("out")
    told.sink_to(RedisSink(url, lambda record: ("HSET", f"{writes}:seen", record["id"] % 10, record["id"]))).uid("seen")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("streamed")


if __name__ == "__main__":
    main(*sys.argv[1:])
