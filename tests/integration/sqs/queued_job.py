"""A queue -> keyed state -> files, in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.sqs.queued_job FOLDER QUEUE PARALLELISM
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.connectors.sqs import SqsSource
from penstock.datastream.formats.json import JsonLinesEncoder
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "9057905790579057905790579057905c"


def main(folder: str, queue: str, parallelism: str) -> None:
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
    source = SqsSource(queue, SimpleStringSchema(), exactly_once=True, visibility_timeout=3_000, patience=5_000)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    counted = stream.map(lambda text: (int(text) % 10, int(text))).uid("map").key_by(lambda pair: pair[0])
    told = counted.map(lambda pair: {"id": pair[1]}).uid("told")
    files = FileSink.for_row_format(f"{folder}/out", JsonLinesEncoder())
    told.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("queued")


if __name__ == "__main__":
    main(*sys.argv[1:])
