"""Count documents by key, and write each count to a document.

The job runs in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.mongodb.counting_job FOLDER URL IN OUT PARALLELISM
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.mongodb import MongoSink, MongoSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "0be75ea4c40be75ea4c40be75ea4c40c"
DATABASE = "counting"
KEYS = 30


def slowly(document: dict[str, Any]) -> tuple[int, int]:
    time.sleep(0.003)
    return document["n"] % KEYS, 1


def added(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0], left[1] + right[1]


def document(count: tuple[int, int]) -> dict[str, Any]:
    return {"_id": f"k{count[0]}", "count": count[1]}


def main(folder: str, url: str, read: str, written: str, parallelism: str) -> None:
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
    source = MongoSource(url, DATABASE, read, splits=4)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").map(slowly).uid("keyed")
    counts = stream.key_by(lambda pair: pair[0]).reduce(added).uid("count")
    counts.sink_to(MongoSink(url, DATABASE, written, document, batch_time=50, patience=5_000)).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("counting")


if __name__ == "__main__":
    main(*sys.argv[1:])
