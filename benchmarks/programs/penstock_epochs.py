"""Epochs of 1,000 records with one exchange, and bare PySpark jobs of two Python stages, on the same cluster in turn."""

from __future__ import annotations

import argparse
import json
import time
from operator import add
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.runners.runner import Watch
from penstock.taskmanager.protocol import EpochCommand, LevelAck

RECORDS = 1000
SLOTS = 2
WARM_UP = 20


class AlternatingProvider(LocalClusterProvider):
    """A provider that times every epoch of its runner, and runs a bare Spark job after each."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[float] = []
        self.bare: list[float] = []

    def runner_for(self, slots: int, levels: int, settings: JobSettings, *, dataframes: bool) -> Any:
        runner: Any = super().runner_for(slots, levels, settings, dataframes=dataframes)
        run_epoch = runner.run_epoch

        def timed(commands: list[EpochCommand], watch: Watch) -> list[LevelAck]:
            began = time.perf_counter()
            acks: list[LevelAck] = run_epoch(commands, watch)
            middle = time.perf_counter()
            self.run_bare()
            self.epochs.append(middle - began)
            self.bare.append(time.perf_counter() - middle)
            return acks

        runner.run_epoch = timed
        return runner

    def run_bare(self) -> None:
        assert self.cluster is not None
        context = self.cluster.spark.context
        pairs = context.parallelize(range(RECORDS), SLOTS).map(lambda n: (n % 100, 1))
        pairs.partitionBy(SLOTS).mapPartitions(count).collect()


def count(pairs: Any) -> Any:
    counts: dict[int, int] = {}
    for key, one in pairs:
        counts[key] = counts.get(key, 0) + one
    return counts.items()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--epochs", type=int, default=100)
    options = arguments.parse_args()
    configuration = Configuration()
    configuration.set_string("penstock.epoch.max-records", str(RECORDS // SLOTS))
    configuration.set_string("penstock.runner", "batched")
    configuration.set_string("rest.port", "-1")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(SLOTS)
    source = DataGeneratorSource(lambda index: (index % 100, 1), count=RECORDS * (options.epochs + WARM_UP))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(0).reduce(lambda total, one: (total[0], add(total[1], one[1]))).add_sink(lambda value: None)
    provider = AlternatingProvider()
    session = Session(provider)
    begin = time.time()
    try:
        with executing_on(session):
            env.execute("epochs")
    finally:
        session.stop()
    result: dict[str, Any] = {"begin": begin, "end": time.time()}
    result |= {"epochs": provider.epochs[WARM_UP:], "bare": provider.bare[WARM_UP:]}
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
