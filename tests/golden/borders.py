"""The sources and sinks of the kept job: files, a generator, transactions of a function, and pending requests.

The savepoint is recorded with a half-read file, a half-written part file, and commits that have not happened.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.two_phase import TwoPhaseCommitSink, TwoPhaseCommitSinkFunction
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import AsyncDataStream, AsyncFunction
from penstock.datastream.connectors.file_system import FileSink, FileSource, OnCheckpointRollingPolicy, StreamFormat
from penstock.datastream.data_stream import DataStream
from penstock.testing import JobHarness

FOLDER = Path("/tmp/penstock-golden")
"""Folder of the files. Positions and committables contain absolute paths, so the job must find its files in the same
place."""
LINES = [f"line {number}" for number in range(900)]
LATER = [f"later line {number}" for number in range(100)]
GENERATED = 40
MODIFIED = 1_700_000_000
"""Modification time of the input (s). The source uses it to recognize files."""


class Answers(AsyncFunction):
    """A function that gives no answer while the savepoint is recorded, so that the savepoint contains the requests."""

    held = False

    async def async_invoke(self, value: int) -> list[int]:
        while Answers.held:
            await asyncio.sleep(0.01)
        return [value, value * 10]


class Ledger(TwoPhaseCommitSinkFunction):
    """A sink whose transactions are files: `open-N` until the commit, then `done-N`."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def begin_transaction(self) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self.folder.iterdir()))
        (self.folder / f"open-{number}").write_text("")
        return str(number)

    def invoke(self, transaction: str, value: Any, context: Any) -> None:
        with (self.folder / f"open-{transaction}").open("a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction: str) -> None:
        """Do nothing, because every value is already in the file."""

    def commit(self, transaction: str) -> None:
        if (self.folder / f"open-{transaction}").exists():
            (self.folder / f"open-{transaction}").rename(self.folder / f"done-{transaction}")

    def abort(self, transaction: str) -> None:
        (self.folder / f"open-{transaction}").unlink(missing_ok=True)


def build(harness: JobHarness) -> None:
    """Declare the job. It reads the files of `FOLDER/in`, generated numbers and the records that are pushed into
    `asked`."""
    env = harness.environment()
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"file://{FOLDER}/in")
        .monitor_continuously(1_000)
        .build()
    )
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
    generator = DataGeneratorSource(lambda index: index * index, GENERATED, records_per_second=10, splits=2)
    squares = env.from_source(generator, WatermarkStrategy.no_watermarks(), "generator").uid("generator")
    _to_files(lines, "lines")
    _to_files(squares.map(str).uid("squares"), "squares")
    requests = harness.source("asked")
    answers = AsyncDataStream.ordered_wait(requests, Answers(), 3_600_000, 10).uid("requests")
    harness.collect(answers, "answers")
    harness.collect(requests.gather(3, 600_000).uid("gathered"), "gathered-lists")


def _to_files(texts: DataStream, name: str) -> None:
    """Write every text to rows of an open part, to Parquet files that each checkpoint finishes, and to transactions."""
    rows = texts.map(lambda text: {"text": text}).uid(f"{name}-rows").set_parallelism(1)
    open_parts = FileSink.for_row_format(f"{FOLDER}/out/{name}-text", JsonLinesEncoder()).build()
    rows.sink_to(open_parts).uid(f"{name}-text").set_parallelism(1)
    parquet = FileSink.for_bulk_format(f"{FOLDER}/out/{name}-parquet", ParquetWriterFactory({"text": str}))
    closed_parts = parquet.with_rolling_policy(OnCheckpointRollingPolicy()).build()
    rows.sink_to(closed_parts).uid(f"{name}-parquet").set_parallelism(1)
    ledger = TwoPhaseCommitSink(Ledger(f"{FOLDER}/out/{name}-ledger"))
    texts.sink_to(ledger).uid(f"{name}-ledger").set_parallelism(1)


def write_input(name: str, lines: list[str]) -> None:
    """Put a file into the folder that the job reads."""
    path = FOLDER / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (MODIFIED, MODIFIED))


def committed(name: str) -> dict[str, list[str]]:
    """Return the texts that each sink has committed."""
    out = FOLDER / "out"
    text = [json.loads(line)["text"] for path in _parts(out / f"{name}-text") for line in path.read_text().splitlines()]
    parquet = [value for path in _parts(out / f"{name}-parquet") for value in pq.read_table(path)["text"].to_pylist()]
    ledger = [line for path in (out / f"{name}-ledger").glob("done-*") for line in path.read_text().splitlines()]
    return {"text": sorted(text), "parquet": sorted(parquet), "ledger": sorted(ledger)}


def _parts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
