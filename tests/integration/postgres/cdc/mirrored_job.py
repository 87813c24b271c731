"""The changes of a table -> keyed state -> another table.

The job runs in a separate process, which continues from its newest checkpoint each time it is started again.

python -m tests.integration.postgres.cdc.mirrored_job FOLDER CONNINFO TABLE MIRROR PARALLELISM
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.postgres import PostgresCdcSource, PostgresSink
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from tests.in_process import InProcess, environment

JOB_ID = "7357735773577357735773577357735a"
FIELDS = {"id": int, "key": str, "n": int}


class Checked(KeyedProcessFunction):
    """A function that passes on changes that fit the row's state. Any other change becomes a row that no table has."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.there = runtime_context.get_state(ValueStateDescriptor("there", Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        kind, there = value.get_row_kind(), bool(self.there.value())
        if (kind is RowKind.INSERT and there) or (kind is RowKind.DELETE and not there):
            yield Row(id=-1 - value.id, key=f"{kind} of a row that is{'' if there else ' not'} there", n=0)
        self.there.update(kind is not RowKind.DELETE)
        yield value


def mirrors(env: StreamExecutionEnvironment, conninfo: str, table: str, mirror: str) -> None:
    """Build the job: changes -> keyed state -> the other table."""
    source = PostgresCdcSource.builder().set_conninfo(conninfo).set_table(table, FIELDS).set_splits(3)
    built = source.set_slot_name(table).set_publication(table).set_heartbeat_interval(200).build()
    changes = env.from_source(built, WatermarkStrategy.no_watermarks(), "in").uid("in")
    checked = changes.key_by(lambda row: row.id, Types.LONG()).process(Checked()).uid("checked")
    checked.sink_to(PostgresSink(conninfo, mirror, FIELDS, key=["id"], deletes=True)).uid("out")


def main(folder: str, conninfo: str, table: str, mirror: str, parallelism: str) -> None:
    env = environment(
        Path(folder),
        **{
            "execution.checkpointing.interval": "150 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
        },
    )
    env.set_parallelism(int(parallelism))
    env.set_max_parallelism(8)
    mirrors(env, conninfo, table, mirror)
    with executing_on(Session(InProcess(), SubmitOptions(job_id=JOB_ID))):
        env.execute("mirrored")


if __name__ == "__main__":
    main(*sys.argv[1:])
