"""A JobManager in this process with a varied job, for a browser test of the dashboard."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.process_log import program_log
from penstock.jobmanager.process.session.session import Session
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.peek.stored import Peeked
from penstock.state.snapshot_format.segment import StateInfo
from tests.in_process import InProcess, environment, until

if TYPE_CHECKING:
    from penstock.common.errors import PenstockError
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.jobmanager.job.job_master import JobMaster
    from penstock.jobmanager.runners.live_look_ups import LiveLookUps

SECRET = "hunter2-hunter2"
TOKEN, READER = "the-token-of-the-job", "only-looking"


def order(index: int) -> tuple[str, int, int]:
    """Return customer, amount and time in ms. Some customers order much more than others."""
    return (f"customer-{(index * index) % 97 % (1 + index % 40)}", index % 500, int(time.time() * 1000))


class Totals(KeyedProcessFunction):
    """A function that fails once for each file that a test creates."""

    def __init__(self, faults: str) -> None:
        self.faults = faults

    def open(self, runtime_context: RuntimeContext) -> None:
        total = ValueStateDescriptor("total", int)
        total.set_queryable("total of a customer")
        self.total = runtime_context.get_state(total)
        self.by_amount = runtime_context.get_map_state(MapStateDescriptor("by amount", str, int))

        self.orders = runtime_context.get_metrics_group().counter("orders")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if os.path.exists(self.faults):
            os.unlink(self.faults)
            raise ValueError(f"amount {value[1]} of {value[0]} cannot be right")
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        self.orders.inc()
        size = "large" if value[1] > 250 else "small"
        self.by_amount.put(size, (self.by_amount.get(size) or 0) + 1)
        if total % 5_000 == 0:
            logging.getLogger("orders").warning("%s has ordered for %d, key %s", value[0], total, SECRET)
        yield (value[0], total)


def program(folder: Path, rate: float = 3_000.0, **settings: str) -> StreamExecutionEnvironment:
    env = environment(
        folder,
        **{
            "execution.checkpointing.interval": "2 s",
            "s3.secret-key": SECRET,
            "restart-strategy.type": "fixed-delay",
            **settings,
        },
    )
    env.set_parallelism(int(settings.get("parallelism.default", "3")))
    source = DataGeneratorSource(order, records_per_second=rate)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(500)).with_timestamp_assigner(
        lambda value, _: value[2]
    )
    orders = env.from_source(source, strategy, "Orders").uid("orders")
    totals = (
        orders.filter(lambda value: value[1] >= 0)
        .name("Only real ones")
        .uid("real")
        .key_by(lambda value: value[0])
        .process(Totals(str(folder / "fault")))
        .name("Totals by customer")
        .uid("totals")
    )
    totals.filter(lambda value: value[1] % 1_000 == 0).name("Round totals").uid("round").rebalance().map(
        lambda value: f"{value[0]}: {value[1]}"
    ).name("As text").uid("text").print().uid("out").name("Print")
    orders.key_by(lambda value: value[1] % 10).sum(1).name("Amounts by digit").uid("digits").filter(
        lambda value: False
    ).name("Nothing").uid("nothing").print().uid("none").name("Nowhere")
    return env


class Tasks:
    """Live state of tasks of this process. The real tasks cannot respond, because they are called and do not run.

    Attributes:
        refusal: error that they return instead.
        sample: a key that they have.
    """

    def __init__(self) -> None:
        self.refusal: PenstockError | None = None
        self.sample: Any = "customer-1"

    def look_up(self, uid: str, state: str, key: Any) -> Peeked:
        assert (uid, state) == ("totals", "total")
        if self.refusal is not None:
            raise self.refusal
        values = [b"\x07"] if key == "customer-1" else []
        return Peeked(
            StateInfo(state, "value", {"type": "int"}), {"type": "any"}, values, sample=UNTYPED_KEYS.encode(self.sample)
        )


class Site:
    """The job's REST server. If it has a token, pages ask for it."""

    def __init__(self, folder: Path, *, token: bool = False, slots: int = 16, **settings: str) -> None:
        self.folder = folder
        conf = {"rest.port": "0", "s3.secret-key": SECRET}
        if token:
            (folder / "token").write_text(TOKEN)
            (folder / "reader").write_text(READER)
            conf |= {
                "security.rest.token-file": str(folder / "token"),
                "security.rest.reader-token-file": str(folder / "reader"),
            }
        self.session = Session(InProcess(slots))
        self.session.on_line = None
        self._logging = program_log(Configuration(conf))
        self.session.logs = self._logging.__enter__()
        with executing_on(self.session):
            program(folder, **settings).execute_async("orders")  # type: ignore[arg-type]
        self.job: JobMaster = self.session.dispatcher.jobs()[0]
        self.tasks = Tasks()
        self.job.runner.look_ups = cast("LiveLookUps", self.tasks)
        server = self.session.serve(Configuration(conf))
        assert server is not None
        self.server = server

    @property
    def url(self) -> str:
        return self.server.url

    def fail_once(self) -> None:
        before = self.job.history.restarts
        (self.folder / "fault").touch()
        until(lambda: self.job.history.restarts > before, self.job)
        until(lambda: self.job.history.status.value == "RUNNING", self.job)

    def close(self) -> None:
        self.server.stop()
        self.session.stop()
        self._logging.__exit__(None, None, None)
