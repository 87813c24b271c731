"""Writers learn which checkpoints have been committed, because some of them reuse a name only after the commit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.datastream.connectors.datagen import DataGeneratorSource
from tests.in_process import environment, run

EVENTS: list[tuple[str, int]] = []


class Commits(Committer):
    def commit(self, committables: list[Any]) -> None:
        time.sleep(0.05)
        EVENTS.extend(("committed", checkpoint_id) for checkpoint_id in committables)


class Writes(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None: ...

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        return [checkpoint_id]

    def notify_committed(self, checkpoint_id: int) -> None:
        EVENTS.append(("notified", checkpoint_id))


class Noting(Sink):
    """A sink that claims names and requires checkpoints."""

    def __init__(self, name: str = "a", least_ms: int = 0) -> None:
        self.name, self.least_ms = name, least_ms

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return Writes()

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return Commits()

    def exclusive_names(self) -> tuple[str, ...]:
        return (f"the name {self.name}",)

    def check_checkpoints(self, interval_ms: int, *, bounded: bool) -> None:
        assert bounded
        if interval_ms < self.least_ms:
            raise InvalidJob("checkpoints come too often", remedy="take fewer")


def job(folder: Path, *sinks: Sink) -> Any:
    env = environment(folder, **{"restart-strategy.type": "none"})
    source = DataGeneratorSource(lambda n: n, 300, records_per_second=300)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    for index, sink in enumerate(sinks):
        stream.sink_to(sink).name(f"sink {index}")
    return env


def test_a_writer_is_notified_of_a_checkpoint_only_after_its_commit(tmp_path: Path) -> None:
    EVENTS.clear()
    run(job(tmp_path, Noting()))
    notified = [checkpoint_id for event, checkpoint_id in EVENTS if event == "notified"]
    assert len(notified) >= 3
    assert notified == sorted(set(notified))
    for checkpoint_id in notified:
        assert EVENTS.index(("committed", checkpoint_id)) < EVENTS.index(("notified", checkpoint_id))


def test_two_sinks_with_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"'sink 0' .* and 'sink 1' both have the name a"):
        run(job(tmp_path, Noting("a"), Noting("a")))
    run(job(tmp_path / "other", Noting("a"), Noting("b")))


def test_a_sink_that_does_not_fit_the_checkpoints_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match="too often") as refused:
        run(job(tmp_path, Noting(least_ms=10_000)))
    assert refused.value.operator == "sink 0"
