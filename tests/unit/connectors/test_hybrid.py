"""A hybrid source reads one source after another. It reads each record once, wherever the job fails or stops."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.serialization import SimpleStringEncoder
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.source import ReadBounds, ReaderContext, Source, Split
from penstock.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.number_seq import NumberSequenceSource
from tests.in_process import environment, run


def lines(folder: Path, count: int) -> Source:
    for number in range(count):
        (folder / f"{number}.txt").write_text("".join(f"{number * 10 + n}\n" for n in range(10)))
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder)).build()


def steps(source: Source, state: Any = None, splits: dict[str, tuple[Split, Any]] | None = None) -> Iterator[Any]:
    """Read like the JobManager and one task. Yield the content of each checkpoint, and the records since the last one."""
    enumerator = source.create_enumerator()
    enumerator.restore(state)
    splits = dict(splits or {})
    reader = source.create_reader(ReaderContext(0, 1, "uid"))
    opened: dict[str, Any] = {}
    is_due = state is None
    while True:
        for split in enumerator.discover() if is_due or enumerator.discovery_interval_ms is not None else ():
            splits[split.id] = split, None
        is_due = False
        if not splits and enumerator.is_finished():
            reader.close()
            return
        values: list[Any] = []
        for id, (split, position) in list(splits.items()):
            inner = opened.get(id) or opened.setdefault(id, reader.open_split(split, position))
            batch = inner.read(ReadBounds(max_records=3))
            values += [] if batch is None else [int(value) for value in batch.rows().values]
            splits[id] = split, inner.position
            if inner.finished:
                del splits[id]
                enumerator.on_split_ended(split, None)
        yield values, enumerator.snapshot(), dict(splits)


def test_a_source_starts_after_the_previous_one_is_finished(tmp_path: Path) -> None:
    source = HybridSource.builder(lines(tmp_path, 3)).add_source(NumberSequenceSource(30, 59)).build()
    seen = [value for values, _, _ in steps(source) for value in values]
    assert sorted(seen[:30]) == list(range(30))
    assert sorted(seen[30:]) == list(range(30, 60))


def test_reading_continues_exactly_from_every_checkpoint(tmp_path: Path) -> None:
    numbers = HybridSource.builder(lines(tmp_path, 2)).add_source(NumberSequenceSource(20, 29))
    source = numbers.add_source(NumberSequenceSource(30, 39)).build()
    seen: list[int] = []
    checkpoints = 0
    for values, state, splits in steps(source):
        seen += values
        checkpoints += 1
        rest = [value for more, _, _ in steps(source, state, splits) for value in more]
        assert sorted(seen + rest) == list(range(40))
    assert checkpoints > 8


class Raises:
    """A map function that raises once at each of some records."""

    left: set[str] = set()

    def __call__(self, value: Any) -> str:
        if str(value) in Raises.left:
            Raises.left.discard(str(value))
            raise RuntimeError("as ordered")
        return str(value)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_failures_in_each_source_lose_and_repeat_no_record(tmp_path: Path, parallelism: int) -> None:
    (tmp_path / "in").mkdir()
    Raises.left = {"15", "500", "999"}
    settings = {"type": "fixed-delay", "fixed-delay.delay": "10 ms", "fixed-delay.attempts": "9"}
    env = environment(tmp_path, **{f"restart-strategy.{name}": value for name, value in settings.items()})
    env.set_parallelism(parallelism)
    source = HybridSource.builder(lines(tmp_path / "in", 20)).add_source(NumberSequenceSource(200, 999)).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "hybrid").map(Raises())
    out = tmp_path / "out"
    stream.sink_to(_lines_into(out))
    master = run(env)
    assert not Raises.left
    assert master.history.restarts >= 2
    found = [line for path in out.rglob("part-*") for line in path.read_text().splitlines()]
    assert sorted(map(int, found)) == list(range(1_000))


def _lines_into(folder: Path) -> Any:
    return FileSink.for_row_format(str(folder), SimpleStringEncoder()).build()


def test_an_empty_source_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "0.txt").write_text("")
    empty = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path)).build()
    source = HybridSource.builder(empty).add_source(NumberSequenceSource(0, 3)).build()
    assert [value for values, _, _ in steps(source) for value in values] == [0, 1, 2, 3]


def test_no_source_may_follow_an_unbounded_one(tmp_path: Path) -> None:
    endless = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
    endless = endless.monitor_continuously(timedelta(seconds=1))
    with pytest.raises(InvalidJob, match="source 1 of a hybrid source never ends: FileSource"):
        HybridSource.builder(endless.build()).add_source(NumberSequenceSource(0, 1)).build()
    assert not HybridSource.builder(NumberSequenceSource(0, 1)).add_source(endless.build()).build().bounded
