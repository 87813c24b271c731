"""Kafka -> keyed state -> Kafka in a process of its own, which goes on from its newest checkpoint whenever it is started again.

python -m tests.integration.kafka.endless_job FOLDER SERVERS IN OUT PREFIX PARALLELISM
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tests.integration.kafka.support import counting, sink, source

JOB_ID = "c0ffee00c0ffee00c0ffee00c0ffee00"


def main(folder: str, servers: str, reads: str, writes: str, prefix: str, parallelism: str) -> None:
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
