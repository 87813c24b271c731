"""A queue -> keyed state -> files, in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.rabbitmq.queued_job FOLDER URI QUEUE PARALLELISM [MOMENT]

MOMENT: when the process kills itself, once, at its third checkpoint with messages: `before` it acknowledges, or `after` it has requested
this.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.rabbitmq.consumer import Consumer
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.connectors.rabbitmq import RMQSource
from penstock.datastream.formats.json import JsonLinesEncoder
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment
from tests.integration.rabbitmq.queues import config_of

JOB_ID = "9057905790579057905790579057905b"


def dying(folder: Path, moment: str) -> None:
    """End the process at this moment of the third acknowledgement, unless it has already been killed in this way."""
    acknowledge, count, died = Consumer.acknowledge, 0, folder / f"died-{moment}"

    def die(here: str) -> None:
        if here == moment and count >= 3 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def acknowledging(consumer: Consumer, connection: int, tag: int, checkpoint_id: int) -> None:
        nonlocal count
        count += 1
        die("before")
        acknowledge(consumer, connection, tag, checkpoint_id)
        die("after")

    Consumer.acknowledge = acknowledging  # type: ignore[assignment, method-assign]


def main(folder: str, uri: str, queue: str, parallelism: str, moment: str = "") -> None:
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
    source = RMQSource(config_of(uri, requested_heartbeat=2), queue, True, SimpleStringSchema())
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    counted = stream.map(lambda text: (int(text) % 10, int(text))).uid("map").key_by(lambda pair: pair[0])
    told = counted.map(lambda pair: {"id": pair[1]}).uid("told")
    files = FileSink.for_row_format(f"{folder}/out", JsonLinesEncoder())
    told.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("queued")


if __name__ == "__main__":
    main(*sys.argv[1:])
