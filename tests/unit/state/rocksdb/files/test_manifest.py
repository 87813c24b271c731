"""The engine reads the MANIFEST of RocksDB, and RocksDB reads the MANIFEST that the engine writes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rocksdict import Checkpoint

from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.files.assembly import merged
from penstock.state.rocksdb.files.manifest import (
    BLOCK,
    Edit,
    ManifestUnreadable,
    Table,
    Version,
    _encoded,
    _log,
    _sized,
    read_edits,
    read_version,
    write_version,
)
from penstock.state.rocksdb.files.manifest_tail import ManifestTail
from penstock.state.rocksdb.files.pack import CONFIG
from penstock.state.rocksdb.options import read_options


def manifest_of(folder: Path) -> bytes:
    return (folder / (folder / "CURRENT").read_text().strip()).read_bytes()


def test_a_database_is_opened_with_a_rewritten_manifest(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "db"), read_options({"writebuffer.size": "64kb"}))
    family = database.family("state:value")
    for number in range(5_000):
        family[b"%05d" % (number * 7919 % 5_000)] = os.urandom(50)
    rows = list(scan(family, b"", b"\xff"))
    Checkpoint(database._db).create_checkpoint(str(tmp_path / "rocksdb"))
    version = read_version(manifest_of(tmp_path / "rocksdb"))
    database.close()
    assert len(version.of_family("state:value")) > 1
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in [*(table.name for table in version.all_tables()), CONFIG]:
        os.link(tmp_path / "rocksdb" / name, copy / name)
    for name, content in write_version(version).items():
        (copy / name).write_bytes(content)
    opened = Database(str(copy), read_options({}))
    assert list(scan(opened.family("state:value"), b"", b"\xff")) == rows
    opened.close()


def test_a_record_longer_than_a_block_is_restored() -> None:
    tables = {n: Table(6, n, 10, b"a" * 600 + b"%08d" % n, b"b" * 600 + b"%08d" % n, n, n) for n in range(10, 200)}
    version = Version({0: "default", 3: "state:x"}, {0: {}, 3: tables}, 300, 77)
    content = write_version(version)["MANIFEST-000300"]
    assert len(content) > 3 * BLOCK
    assert read_version(content) == Version(version.families, version.tables, 301, 77)


def test_an_incomplete_group_is_ignored() -> None:
    atomic, last = _encoded(300), _encoded(4)
    log = _log([last + _encoded(5), atomic + _encoded(1) + last + _encoded(6)])
    assert [edit.last_sequence for edit in read_edits(log)] == [5]
    whole = _log(
        [last + _encoded(5), atomic + _encoded(1) + last + _encoded(6), atomic + _encoded(0) + last + _encoded(7)]
    )
    assert [edit.last_sequence for edit in read_edits(whole)] == [5, 6, 7]
    assert read_edits(log[:-1]) == read_edits(log)[:1]


def test_a_growing_manifest_is_continued_at_any_position(tmp_path: Path) -> None:
    last, atomic, kept = _encoded(4), _encoded(300), _encoded((1 << 13) + 99)
    payloads = [last + _encoded(n) + kept + _sized(bytes(n * 977 % 9_000)) for n in range(1, 40)]
    payloads[20:20] = [atomic + _encoded(n) + last + _encoded(100 + n) for n in (2, 1, 0)]
    payloads.append(last + _encoded(200) + kept + _sized(bytes(2 * BLOCK)))
    whole = _log(payloads)
    expected = read_edits(whole)
    assert len(expected) == len(payloads)
    for seed in range(6):
        tail = ManifestTail(tmp_path)
        found: list[Edit] = []
        cuts = random.Random(seed).choices(range(len(whole)), k=seed * 8)
        for cut in [*sorted(cuts), len(whole)]:
            (tmp_path / "MANIFEST-1").write_bytes(whole[:cut])
            found += tail.read("MANIFEST-1")
        assert found == expected
        assert tail.read("MANIFEST-1") == []
        assert tail.version == read_version(whole)
    (tmp_path / "MANIFEST-2").write_bytes(_log([last + _encoded(7)]))
    tail.read("MANIFEST-2")
    assert tail.version.last_sequence == 7, "another MANIFEST is read from its beginning"


def test_an_unknown_record_is_refused_unless_it_may_be_ignored() -> None:
    assert len(read_edits(_log([_encoded((1 << 13) + 99) + _sized(b"news")]))) == 1
    with pytest.raises(ManifestUnreadable, match="77"):
        read_edits(_log([_encoded(77) + _encoded(1)]))
    with pytest.raises(ManifestUnreadable, match="cut off"):
        read_edits(_log([_encoded(103) + _encoded(1)]))


def test_merged_files_of_several_databases_get_new_numbers_and_a_separate_order() -> None:
    def one(name: str, family: int, number: int) -> Version:
        table = Table(0, number, 1, b"k" + bytes(8), b"k" + bytes(8), 1, 2, ((13, _encoded(4)),))
        return Version({0: "default", family: name}, {family: {number: table}}, number + 1, number)

    whole, moves = merged([one("state:a", 1, 8), one("state:b", 1, 8), one("state:a", 2, 3)])
    assert whole.families == {0: "default", 1: "state:a", 2: "state:b"}
    assert [table.number for table in whole.all_tables()] == [8, 21, 17]
    assert sorted(table.epoch for table in whole.all_tables()) == [4, 8, 12]
    assert [(move.source, move.name, move.new_name) for move in moves] == [
        (0, "000008.sst", "000008.sst"),
        (1, "000008.sst", "000017.sst"),
        (2, "000003.sst", "000021.sst"),
    ]
    assert (whole.next_file, whole.last_sequence) == (22, 8)
