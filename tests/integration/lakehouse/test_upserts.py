"""Rows that replace or delete rows with the same key.

Each key exists once with its last values, even if other writers commit and answers are lost."""

from __future__ import annotations

import base64
import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    TruncateTransform,
)
from pyiceberg.types import LongType

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.types import Row, RowKind
from penstock.connectors.core.sink import CommitEnvironment, SinkWriter, StagedCommittable
from penstock.connectors.iceberg.log import IcebergLog
from penstock.connectors.lakehouse import commits as lakehouse_commits
from penstock.records.batch import ColumnBatch
from tests.integration.lakehouse.lakes import FIELDS, DeltaLake, IcebergLake, Lake, committer_of, voted, writer_of


def votes(writer: SinkWriter, checkpoint: int) -> list[Any]:
    """Return a subtask's committables as a manifest stores them."""
    staged = writer.prepare_commit(checkpoint)
    assert all(isinstance(piece, StagedCommittable) for piece in staged)
    pieces = [piece.about | {"content": base64.b64encode(piece.content()).decode()} for piece in staged]
    return list(json.loads(json.dumps(pieces)))


def changed(writer: SinkWriter, checkpoint: int, *rows: Any) -> list[Any]:
    writer.write(list(rows), None, 0)
    return votes(writer, checkpoint)


def committer(sink: Any, job: str = "job", options: dict[str, Any] | None = None) -> Any:
    found = committer_of(sink, job) if options is None else sink.create_committer(options, job_id=job, uid="sink")
    found.environment = CommitEnvironment(None)  # type: ignore[arg-type]
    return found


def row(*values: Any, kind: RowKind = RowKind.INSERT) -> Row:
    found = Row(*values)
    found.set_row_kind(kind)
    return found


def pairs(lake: Lake) -> dict[int, str]:
    rows = lake.table().to_pylist()
    assert len({found["id"] for found in rows}) == len(rows), "a key is there twice"
    return {found["id"]: found["key"] for found in rows}


def test_rows_replace_those_of_their_key_and_become_visible_together(lake: Lake) -> None:
    sink = lake.sink(key=["id"])
    commits, first, second = committer(sink), writer_of(sink, 0), writer_of(sink, 1)
    commits.commit(changed(first, 1, (1, "a"), (3, "a"), (1, "b")) + changed(second, 1, (2, "a")))
    assert pairs(lake) == {1: "b", 2: "a", 3: "a"}
    commits.commit(changed(first, 2, {"id": 3, "key": "c"}) + changed(second, 2, (4, "c")))
    assert pairs(lake) == {1: "b", 2: "a", 3: "c", 4: "c"}
    assert lake.commits() == 2
    assert lake.by_duckdb("select id, key from files order by id") == [(1, "b"), (2, "a"), (3, "c"), (4, "c")]


def test_the_kind_of_a_row_decides_how_it_is_written(lake: Lake) -> None:
    sink = lake.sink(key=["id"], deletes=True)
    commits, writer = committer(sink), writer_of(sink)
    commits.commit(changed(writer, 1, row(1, "a"), row(2, "a"), row(3, "a"), row(4, "a")))
    second = changed(
        writer,
        2,
        row(1, None, kind=RowKind.DELETE),
        row(2, "a", kind=RowKind.UPDATE_BEFORE),
        row(2, "b", kind=RowKind.UPDATE_AFTER),
        row(3, "a", kind=RowKind.DELETE),
        row(3, "again"),
        row(5, "short-lived"),
        row(5, None, kind=RowKind.DELETE),
        row(99, None, kind=RowKind.DELETE),
    )
    commits.commit(second)
    assert pairs(lake) == {2: "b", 3: "again", 4: "a"}


def test_columns_of_a_batch_are_changes_too(lake: Lake) -> None:
    sink = lake.sink(key=["id"])
    writer = writer_of_made(sink)
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1, 2, 1], pa.int32()), "key": ["a", "b", "c"]})
    writer.write_batch(ColumnBatch(batch, None, lambda found: found.to_pylist()), 0)
    committer(sink).commit(votes(writer, 1))
    assert pairs(lake) == {1: "c", 2: "b"}


def writer_of_made(sink: Any) -> SinkWriter:
    committer_of(sink)
    return writer_of(sink)


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_without_an_answer_is_made_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, happened: bool) -> None:
    sink = lake.sink(key=["id"], deletes=True)
    commits, writer = committer(sink), writer_of_made(sink)
    merge, calls = commits._log.merge, 0

    def torn(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls != 1 or happened:
            merge(*arguments)
        if calls == 1:
            raise TimeoutError("no answer")

    monkeypatch.setattr(commits._log, "merge", torn)
    commits.commit(changed(writer, 1, row(1, "a"), row(2, "a")))
    commits.commit(changed(writer, 2, row(1, "b"), row(2, "a", kind=RowKind.DELETE)))
    assert pairs(lake) == {1: "b"}
    assert lake.commits() == 2


def test_a_committed_checkpoint_is_not_committed_again_even_if_it_changed_nothing(lake: Lake) -> None:
    """An old checkpoint's rows would overwrite those of a newer one."""
    sink = lake.sink(key=["id"], deletes=True)
    commits, writer = committer(sink), writer_of_made(sink)
    pieces = [changed(writer, 1, row(1, "old"))]
    pieces.append(changed(writer, 2, row(99, None, kind=RowKind.DELETE)))
    pieces.append(changed(writer, 3, row(1, "new")))
    for piece in pieces:
        commits.commit(piece)
    for piece in pieces:
        committer(sink).commit(piece)
        committer(sink, job="a job that began from its savepoint").commit(piece)
    assert pairs(lake) == {1: "new"}


def test_a_commit_of_a_faster_writer_is_respected(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    commits.commit(changed(writer, 1, (1, "a")))
    look, others = commits._log.look, iter([2])

    def overtaken() -> None:
        look()
        for number in list(others)[:1]:
            lake.write(pa.table({"id": [number], "key": ["other"]}))

    monkeypatch.setattr(commits._log, "look", overtaken)
    commits.commit(changed(writer, 2, (1, "b"), (2, "ours"), (3, "c")))
    assert pairs(lake) == {1: "b", 2: "ours", 3: "c"}


def test_a_replaced_jobmanager_changes_nothing_after_its_successor(lake: Lake) -> None:
    sink = lake.sink(key=["id"])
    zombie, successor, writer = committer(sink), committer(sink), writer_of_made(sink)
    first, second = changed(writer, 1, (1, "old")), changed(writer, 2, (1, "new"))
    zombie._log.look()
    successor.commit(first)
    successor.commit(second)
    with pytest.raises(Exception, match=r"."):
        zombie._log.merge("penstock/job/sink", 1, "digest", zombie._changes(1, first))
    zombie.commit(first)
    assert pairs(lake) == {1: "new"}


def test_files_without_these_keys_are_left_alone(lake: Lake) -> None:
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    for checkpoint in range(3):
        ids = range(checkpoint * 1000, checkpoint * 1000 + 1000)
        commits.commit(changed(writer, checkpoint + 1, *((n, "a") for n in ids)))
    before = set(lake.named_files())
    assert len(before) == 3
    commits.commit(changed(writer, 4, (1500, "b"), (5000, "b")))
    assert len(before & set(lake.named_files())) == 2
    assert pairs(lake) == {**dict.fromkeys(range(3000), "a"), 1500: "b", 5000: "b"}


KEYED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "n": (pa.int32(), [1, 2, 3]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]),
    "cents": (pa.decimal128(12, 2), [Decimal("1.10"), Decimal("2.20"), Decimal("-3.30")]),
    "day": (pa.date32(), [date(2020, 1, 1), date(2021, 1, 1), date(2022, 1, 1)]),
    "name": (pa.string(), ["", "ä", "x" * 1000]),
    "raw": (pa.binary(), [b"", b"\x00\xff", b"abc"]),
    "yes": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("name", KEYED)
def test_keys_of_every_type_are_found_again(lake: Lake, name: str) -> None:
    kind, keys = KEYED[name]
    fields = pa.schema([(name, kind), ("value", pa.int64())])
    lake.make(fields)
    sink = lake.sink(fields, key=[name])
    commits, writer = committer(sink), writer_of(sink)
    commits.commit(changed(writer, 1, *((key, 1) for key in keys)))
    commits.commit(changed(writer, 2, *((key, 2) for key in keys[1:])))
    found = {found[name]: found["value"] for found in lake.table().to_pylist()}
    assert found == {key: 1 if key == keys[0] else 2 for key in keys}
    assert lake.table().num_rows == len(keys)


def test_a_key_of_several_columns_in_a_partitioned_table(lake: Lake) -> None:
    fields = {"Day": date, "order": str, "a b": int, "value": float}
    sink = lake.sink(fields, key=["order", "Day", "a b"], partition_by=["Day"], deletes=True)
    commits, writer = committer(sink), writer_of_made(sink)
    one, two = date(2020, 1, 1), date(2020, 1, 2)
    first = [row(day, order, n, 0.0) for day in (one, two) for order in "xy" for n in range(300)]
    commits.commit(changed(writer, 1, *first))
    second = [row(one, "x", np.int64(n), np.float64(1.5)) for n in range(0, 300, 2)]
    commits.commit(changed(writer, 2, *second, row(two, "y", 299, None, kind=RowKind.DELETE), row(two, "z", 0, 9.0)))
    expected = {(found["Day"], found["order"], found["a b"]): found["value"] for found in lake.table().to_pylist()}
    assert lake.table().num_rows == len(expected) == 1200
    assert sum(value == 1.5 for value in expected.values()) == 150
    assert expected[two, "z", 0] == 9.0
    assert (two, "y", 299) not in expected


def test_a_row_moves_to_another_partition(lake: Lake) -> None:
    sink = lake.sink(key=["id"], partition_by=["key"])
    commits, writer = committer(sink), writer_of_made(sink)
    commits.commit(changed(writer, 1, (1, "a"), (2, "a")))
    commits.commit(changed(writer, 2, (1, "b")))
    assert pairs(lake) == {1: "b", 2: "a"}


def test_columns_that_records_do_not_have_are_unchanged(lake: Lake) -> None:
    lake.make(pa.schema([("id", pa.int64()), ("note", pa.string()), ("key", pa.string())]))
    lake.write(pa.table({"id": [1, 2], "note": ["kept", "kept"], "key": ["a", "a"]}))
    sink = lake.sink(key=["id"])
    committer(sink).commit(changed(writer_of(sink), 1, (2, "b"), (3, "b")))
    assert lake.rows() == [
        {"id": 1, "note": "kept", "key": "a"},
        {"id": 2, "note": "kept", "key": "b"},
        {"id": 3, "note": None, "key": "b"},
    ]


def test_rows_deleted_by_other_writers_do_not_return(lake: Lake) -> None:
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    commits.commit(changed(writer, 1, *((n, "a") for n in range(10))))
    lake.delete("id = 4")
    commits.commit(changed(writer, 2, (5, "b")))
    assert pairs(lake) == {**{n: "a" for n in range(10) if n != 4}, 5: "b"}


def test_a_megabyte_in_a_row(lake: Lake) -> None:
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    commits.commit(changed(writer, 1, *((n, "x" * 1_000_000) for n in range(5))))
    commits.commit(changed(writer, 2, (2, "y" * 1_000_000)))
    assert {n: text[0] for n, text in pairs(lake).items()} == {0: "x", 1: "x", 2: "y", 3: "x", 4: "x"}


def test_a_table_that_was_appended_to_gets_a_key_later(lake: Lake) -> None:
    """Rows that the sink without a key has put into a checkpoint are committed without a key."""
    plain = lake.sink()
    committer(plain).commit(voted(writer_of(plain), 1, 1, 2))
    promised = voted(writer_of(plain), 2, 3)
    keyed = lake.sink(key=["id"])
    commits = committer(keyed)
    commits.commit(promised)
    rows = changed(writer_of(keyed), 3, (1, "new"))
    commits.commit(rows)
    assert pairs(lake) == {1: "new", 2: "k2", 3: "k0"}
    more = changed(writer_of(keyed), 4, (2, "new"))
    with pytest.raises(SinkError, match="written by a sink with a key"):
        committer(plain).commit(more)


def test_records_without_a_key_are_refused_by_the_writer(lake: Lake) -> None:
    sink = lake.sink({"id": int | None, "key": str}, key=["id"])
    writer = writer_of_made(sink)
    with pytest.raises(RecordFormatError, match="no value for 'id', which is in the table's key"):
        writer.write([(1, "a"), (None, "b")], None, 0)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (FIELDS, {"key": ["di"]}, r"key=\['di'\] must name distinct fields of the records, which are id, key"),
        (FIELDS, {"deletes": True}, "deletes=True needs key="),
        ({"id": float, "key": str}, {"key": ["id"]}, "cannot be compared for equality"),
        (pa.schema([("id", pa.uuid()), ("key", pa.string())]), {"key": ["id"]}, "cannot be compared for equality"),
        ({"id": int, "penstock_gone": bool}, {"key": ["id"]}, "a field is called 'penstock_gone'"),
    ],
)
def test_invalid_keys_are_refused_in_the_program(
    lake: Lake, fields: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidJob, match=message):
        lake.sink(fields, **options)


def test_a_delta_table_whose_rows_may_not_be_changed_is_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    lake.make(pa.schema([("id", pa.int64()), ("key", pa.string())]))
    lake.opened().alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(InvalidJob, match=r"delta\.appendOnly=true"):
        lake.sink(key=["id"]).validate()
    lake.sink().validate()


def test_an_iceberg_table_with_equality_deletes_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table only claims to have equality deletes, because no available library writes such files."""
    lake = IcebergLake(tmp_path)
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    commits.commit(changed(writer, 1, (1, "a")))
    totals = IcebergLog._totals
    monkeypatch.setattr(IcebergLog, "_totals", lambda log: {**totals(log), "total-equality-deletes": "1"})
    with pytest.raises(SinkError, match="equality deletes"):
        commits.commit(changed(writer, 2, (1, "b")))
    assert pairs(lake) == {1: "a"}


def test_a_sink_with_other_fields_and_another_key_commits_stored_rows_unchanged(lake: Lake) -> None:
    old = lake.sink({"id": int, "key": str, "count": int}, key=["id"])
    commits, writer = committer(old), writer_of_made(old)
    commits.commit(changed(writer, 1, (1, "a", 1), (2, "a", 1)))
    promised = changed(writer, 2, (1, "b", 2), (3, "b", 2))
    committer(lake.sink({"id": int, "key": str, "more": int}, key=["key", "id"], add_columns=True)).commit(promised)
    assert pairs(lake) == {1: "b", 2: "a", 3: "b"}
    assert {found["id"]: (found["count"], found["more"]) for found in lake.rows()} == {
        1: (2, None),
        2: (1, None),
        3: (2, None),
    }


def test_an_iceberg_column_that_becomes_wider_while_subtasks_open_the_table(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    fields = pa.schema([("id", pa.int32()), ("key", pa.string())])
    lake.make(fields)
    sink = lake.sink(fields, key=["id"])
    commits, first = committer(sink), writer_of(sink)
    commits.commit(changed(first, 1, (1, "a"), (2, "a")))
    with lake.opened().update_schema() as update:
        update.update_column("id", LongType())
    commits.commit(changed(first, 2, (1, "b")) + changed(writer_of(sink, 1), 2, (2, "b"), (3, "b")))
    assert pairs(lake) == {1: "b", 2: "b", 3: "b"}


def test_an_error_while_counting_files_does_not_fail_a_successful_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakehouse_commits, "_HINT_EVERY", 1)
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    counted = 0

    def away() -> tuple[int, int]:
        nonlocal counted
        counted += 1
        raise SinkError("the table does not answer")

    monkeypatch.setattr(commits._log, "size", away)
    commits.commit(changed(writer, 1, (1, "a")))
    assert counted == 1
    assert pairs(lake) == {1: "a"}


def test_aborted_rows_need_no_table(lake: Lake) -> None:
    """No file of the table has contained the rows."""
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    lost = changed(writer, 1, (1, "a"))
    shutil.rmtree(lake.folder)
    commits.abort(lost)


def test_a_writer_refuses_days_that_python_cannot_represent_as_bounds(lake: Lake) -> None:
    fields = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    sink = lake.sink(fields, key=["id"])
    writer = writer_of_made(sink)
    for days in (10_000_000, -10_000_000):
        batch = pa.RecordBatch.from_pydict({"id": [1], "day": pa.array([days], pa.int32()).cast(pa.date32())})
        with pytest.raises(RecordFormatError, match="not in the years 1 to 9999"):
            writer.write_batch(ColumnBatch(batch, None, lambda found: found.to_pylist()), 0)


def test_a_delta_table_that_is_partitioned_by_bytes_is_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    fields = pa.schema([("id", pa.int64()), ("raw", pa.binary())])
    lake.make(fields, ["raw"])
    with pytest.raises(InvalidJob, match="partitioned by bytes, in 'raw'"):
        lake.sink(fields, key=["id"]).validate()
    lake.sink(fields).validate()


def test_an_iceberg_table_may_have_a_column_with_the_reserved_name(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    lake.make(pa.schema([("id", pa.int64()), ("key", pa.string()), ("penstock_gone", pa.string())]))
    lake.write(pa.table({"id": [1], "key": ["a"], "penstock_gone": ["kept"]}))
    sink = lake.sink(key=["id"])
    committer(sink).commit(changed(writer_of(sink), 1, (1, "b")))
    assert lake.rows() == [{"id": 1, "key": "b", "penstock_gone": "kept"}]


def test_an_iceberg_commit_that_is_sent_twice_keeps_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy without an answer repeats the commit: the catalog refuses the second one, and the table has the first."""
    lake = IcebergLake(tmp_path)
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_made(sink)
    once = commits._log._commit

    def twice(*arguments: Any) -> None:
        once(*arguments)
        raise CommitFailedException("the table has changed")

    monkeypatch.setattr(commits._log, "_commit", twice)
    commits.commit(changed(writer, 1, (1, "a")))
    assert pairs(lake) == {1: "a"}
    assert lake.commits() == 1


TRANSFORMS = {
    "name": [IdentityTransform(), BucketTransform(4), TruncateTransform(1)],
    "at": [DayTransform(), HourTransform()],
}


@pytest.mark.parametrize(("name", "transform"), [(name, each) for name in TRANSFORMS for each in TRANSFORMS[name]])
def test_an_iceberg_table_whose_partitions_change(tmp_path: Path, name: str, transform: Any) -> None:
    """The order of rows changes too. Files of older partitions are found by their own partition values."""
    lake = IcebergLake(tmp_path)
    fields = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string()), ("value", pa.int64())]
    )
    lake.make(fields)
    sink = lake.sink(fields, key=["id", "name", "at"])
    commits, writer = committer(sink), writer_of(sink)
    keys = [(n, datetime(2020, 1, 1 + n % 3, n % 5, tzinfo=UTC), f"{n % 7}é") for n in range(100)]
    commits.commit(changed(writer, 1, *((*key, 1) for key in keys)))
    with lake.opened().update_spec() as update:
        update.add_field(name, transform, "part")
    commits.commit(changed(writer, 2, *((*key, 2) for key in keys[::2])))
    with lake.opened().update_spec() as update:
        update.add_field("id", BucketTransform(3), "also")
    commits.commit(changed(writer, 3, *((*key, 3) for key in keys[::3])))
    with lake.opened().update_spec() as update:
        update.remove_field("part")
    with lake.opened().update_sort_order() as update:
        update.asc("id", IdentityTransform())
    commits.commit(changed(writer, 4, *((*key, 4) for key in keys[1::4])))
    found = {(found["id"], found["at"], found["name"]): found["value"] for found in lake.table().to_pylist()}
    assert lake.table().num_rows == len(keys)
    assert found == {
        key: 4 if n % 4 == 1 else 3 if n % 3 == 0 else 2 if n % 2 == 0 else 1 for n, key in enumerate(keys)
    }


def test_rows_with_required_columns_are_deleted_by_their_key(lake: Lake) -> None:
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.string(), nullable=False)])
    lake.make(fields)
    sink = lake.sink(fields, key=["id"], deletes=True)
    commits, writer = committer(sink), writer_of(sink)
    commits.commit(changed(writer, 1, row(1, "a"), row(2, "a")))
    commits.commit(changed(writer, 2, row(1, None, kind=RowKind.DELETE), row(9, None, kind=RowKind.DELETE)))
    assert pairs(lake) == {2: "a"}
    commits.commit(changed(writer, 3, row(2, None, kind=RowKind.DELETE)))
    assert pairs(lake) == {}
    commits.commit(changed(writer, 4, row(2, "again")))
    assert pairs(lake) == {2: "again"}
    with pytest.raises(RecordFormatError, match="allows no nulls"):
        writer.write([row(3, None)], None, 0)


ODD_NAMES = ["a.b", "a`b", 'a"b', "Select", "a,b = c", "ä", "1", "s.id"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_columns_may_have_any_name(lake: Lake, name: str) -> None:
    sink = lake.sink({name: str, "v.`w": int}, key=[name], partition_by=[name])
    commits, writer = committer(sink), writer_of_made(sink)
    commits.commit(changed(writer, 1, ("x", 1), ("y", 1)))
    commits.commit(changed(writer, 2, ("y", 2), ("z", 2)))
    assert sorted(tuple(found.values()) for found in lake.table().to_pylist()) == [("x", 1), ("y", 2), ("z", 2)]
