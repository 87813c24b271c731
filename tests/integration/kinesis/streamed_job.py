"""A stream -> keyed state -> files, in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.kinesis.streamed_job FOLDER ENDPOINT STREAM PARALLELISM
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.common.serialization import SimpleStringSchema
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.connectors.kinesis import KinesisSource
from penstock.datastream.formats.json import JsonLinesEncoder
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "9057905790579057905790579057905d"


class InOrder(KeyedProcessFunction):
    """A function that returns each number of a key together with the previous one."""

    def open(self, runtime_context: Any) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        number = int(value)
        yield {"id": number, "after": self._last.value()}
        self._last.update(number)


def main(folder: str, endpoint: str, stream: str, parallelism: str) -> None:
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
    source = KinesisSource(
        stream, SimpleStringSchema(), endpoint=endpoint, start="trim_horizon", discovery_interval=300, patience=5_000
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
    told = numbers.key_by(lambda text: int(text) % 10).process(InOrder()).uid("order")
    files = FileSink.for_row_format(f"{folder}/out", JsonLinesEncoder())
    told.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("out")
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("streamed")


if __name__ == "__main__":
    main(*sys.argv[1:])
