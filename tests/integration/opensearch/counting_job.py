"""Count generated numbers by key, and write each count to a document.

The job runs in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.opensearch.counting_job FOLDER URL INDEX COUNT PARALLELISM
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.connectors.opensearch import OpenSearchSink
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "0be75ea4c40be75ea4c40be75ea4c40b"
RATE = 1500.0
KEYS = 30


def keyed(index: int) -> tuple[int, int]:
    return index % KEYS, 1


def added(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0], left[1] + right[1]


def document(count: tuple[int, int]) -> dict[str, Any]:
    return {"_id": count[0], "count": count[1]}


def main(folder: str, url: str, index: str, count: str, parallelism: str) -> None:
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
    source = DataGeneratorSource(keyed, int(count), RATE, splits=1)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    counts = stream.key_by(lambda pair: pair[0]).reduce(added).uid("count")
    counts.sink_to(OpenSearchSink(url, document, index=index, batch_time=50, patience=5_000)).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("counting")


if __name__ == "__main__":
    main(*sys.argv[1:])
