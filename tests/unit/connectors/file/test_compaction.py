"""Compaction merges the files of the rolling policy: the same bytes in fewer files. The strategy decides when they become visible."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.connectors.file.sink.compact import FileCompactor, FileCompactStrategy
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.connectors.formats.csv import CsvDialect
from penstock.connectors.formats.encode import CsvEncoder
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.table import DataTypes
from tests.unit.connectors.support import TEXT, snapshot, visible, writer_context

AFTER_3 = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).set_num_compact_threads(2).build()
SEMICOLON = FileCompactor.concat_file_compactor(b";")


def _sink(
    path: Path, strategy: FileCompactStrategy, compactor: FileCompactor = SEMICOLON, encoder: Any = TEXT
) -> FileSink:
    builder = FileSink.for_row_format(str(path), encoder)
    return (
        builder.with_rolling_policy(RollingPolicy(0, 0, 0, on_checkpoint=True))
        .enable_compact(strategy, compactor)
        .build()
    )


def _texts(path: Path) -> list[str]:
    return [file.read_text() for file in visible(path)]


@pytest.mark.parametrize("crashes", [False, True])
def test_files_of_several_checkpoints_become_one(tmp_path: Path, crashes: bool) -> None:
    sink = _sink(tmp_path, AFTER_3)
    committer, writer, seen = sink.create_committer({}), sink.create_writer(writer_context(), []), []
    for checkpoint in range(1, 7):
        writer.write([checkpoint], None, 0)
        committables, state = snapshot(writer, checkpoint)
        committer.commit(committables)
        if crashes:
            writer.write(["lost"], None, 0)
            writer = sink.create_writer(writer_context(attempt=checkpoint), state)
        seen.append(len(visible(tmp_path)))
    assert seen == [0, 0, 1, 1, 1, 2]
    assert _texts(tmp_path) == ["1\n;2\n;3\n", "4\n;5\n;6\n"]


def test_files_become_one_when_they_are_large_enough(tmp_path: Path) -> None:
    sink = _sink(tmp_path, FileCompactStrategy.builder().set_size_threshold(6).build())
    committer, writer = sink.create_committer({}), sink.create_writer(writer_context(), [])
    for checkpoint in range(1, 5):
        writer.write([checkpoint], None, 0)
        committer.commit(snapshot(writer, checkpoint)[0])
    assert _texts(tmp_path) == ["1\n;2\n;3\n"]
    writer.finish()
    committer.commit(snapshot(writer, 5)[0])
    assert _texts(tmp_path) == ["1\n;2\n;3\n", "4\n"]


def test_the_size_limits_of_the_policy_apply_to_each_file(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(4, 0, 0))
    sink = builder.enable_compact(AFTER_3, SEMICOLON).build()
    committer, writer = sink.create_committer({}), sink.create_writer(writer_context(), [])
    writer.write([1, 2, 3, 4, 5], None, 0)
    writer.finish()
    committer.commit(snapshot(writer, 1)[0])
    assert _texts(tmp_path) == ["1\n2\n;3\n4\n;5\n"]


def test_each_file_has_a_header(tmp_path: Path) -> None:
    sink = _sink(
        tmp_path, AFTER_3, FileCompactor.concat_file_compactor(), CsvEncoder(["a"], CsvDialect(header="names"))
    )
    committer, writer = sink.create_committer({}), sink.create_writer(writer_context(), [])
    for checkpoint in range(1, 4):
        writer.write([(checkpoint,)], None, 0)
        committer.commit(snapshot(writer, checkpoint)[0])
    assert _texts(tmp_path) == ["a\n1\na\n2\na\n3\n"]


@pytest.mark.parametrize("how", ["identical", "disabled"])
def test_files_follow_the_policy_if_nothing_is_merged(tmp_path: Path, how: str) -> None:
    builder = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(
        RollingPolicy(0, 0, 0, on_checkpoint=True)
    )
    if how == "identical":
        builder.enable_compact(AFTER_3, FileCompactor.identical_file_compactor())
    else:
        builder.enable_compact(AFTER_3, SEMICOLON).disable_compact()
    sink = builder.build()
    committer, writer = sink.create_committer({}), sink.create_writer(writer_context(), [])
    for checkpoint in range(1, 4):
        writer.write([checkpoint], None, 0)
        committer.commit(snapshot(writer, checkpoint)[0])
    assert _texts(tmp_path) == ["1\n", "2\n", "3\n"]


def test_compressed_files_are_merged_as_members(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(
        RollingPolicy(0, 0, 0, on_checkpoint=True)
    )
    sink = builder.with_compression("gzip").enable_compact(AFTER_3, FileCompactor.concat_file_compactor()).build()
    committer, writer = sink.create_committer({}), sink.create_writer(writer_context(), [])
    for checkpoint in range(1, 4):
        writer.write([checkpoint], None, 0)
        committer.commit(snapshot(writer, checkpoint)[0])
    assert [gzip.decompress(file.read_bytes()) for file in visible(tmp_path)] == [b"1\n2\n3\n"]


def test_a_format_that_cannot_be_merged_is_refused(tmp_path: Path) -> None:
    row_type = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())])
    with pytest.raises(InvalidJob, match="bulk format"):
        FileSink.for_bulk_format(str(tmp_path), ParquetBulkWriters.for_row_type(row_type)).enable_compact(
            AFTER_3, SEMICOLON
        )
    with pytest.raises(InvalidJob, match="compressed"):
        FileSink.for_row_format(str(tmp_path), TEXT).with_compression("gzip").enable_compact(AFTER_3, SEMICOLON).build()
    with pytest.raises(InvalidJob, match="end at every checkpoint"):
        FileSink.for_row_format("memory://x", TEXT).enable_compact(AFTER_3, SEMICOLON).build().validate()
    with pytest.raises(InvalidJob, match="neither a number of checkpoints nor a size"):
        FileCompactStrategy.builder().build()
