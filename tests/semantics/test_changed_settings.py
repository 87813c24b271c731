"""Upgrades that change a time to live, the format of a file sink or a connector, and upgrades between versions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import RestoreRefused, StateFormatUnsupported
from penstock.common.serialization import Encoder
from penstock.connectors.formats.csv import CsvDialect
from penstock.connectors.formats.encode import CompressedEncoder, CsvEncoder, JsonLinesEncoder
from penstock.connectors.simple.collection import CollectionSource
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.connectors.simple.print import PrintSink
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.graph import operations
from penstock.graph.state_meaning.compare import compare
from penstock.graph.state_meaning.describe import VERSION, meaning_of
from penstock.testing import JobHarness

# --- time to live -------------------------------------------------------------------------------------------------


class Remember(KeyedProcessFunction):
    """A function that stores a positive number under its key in every kind of state. For other numbers it emits the
    stored ones."""

    def __init__(self, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms

    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", int, ttl=self.ttl_ms))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", int, ttl=self.ttl_ms))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", int, int, ttl=self.ttl_ms))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] > 0:
            self.value.update(value[1])
            self.list.add(value[1])
            self.map.put(value[1], value[1])
        else:
            yield self.value.value(), list(self.list.get() or ()), list(self.map.keys())


def remembering(ttl_ms: int) -> Any:
    def build(h: JobHarness) -> None:
        h.collect(h.source("in").key_by(lambda r: r[0]).process(Remember(ttl_ms)).uid("op"), "out")

    return build


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("before", "after", "looks"),
    [
        (1000, 5000, [(3000, True), (5100, False)]),
        (10_000, 1000, [(900, True), (1100, False)]),
    ],
    ids=["longer", "shorter"],
)
def test_another_time_to_live_applies_to_existing_state(
    backend: str, before: int, after: int, looks: list[tuple[int, bool]]
) -> None:
    with JobHarness(backend=backend) as h:
        remembering(before)(h)
        h.push("in", ("a", 1))
        snapshot = h.snapshot()
    with JobHarness.restore_into(snapshot, remembering(after), backend=backend) as h:
        h.push("in", ("b", 2))
        again = h.snapshot()
    for restored in (snapshot, again):  # the second one has the new time to live
        with JobHarness.restore_into(restored, remembering(after), backend=backend) as h:
            h.run()
            h.take("out")
            for now, is_there in looks:
                h.advance_processing_time(to=now)
                h.push("in", ("a", 0))
                assert h.take("out") == [(1, [1], [1]) if is_there else (None, [], [])], now


# --- file sinks ---------------------------------------------------------------------------------------------------


def writing(folder: Path, compression: str | None, encoder: Any = None) -> Any:
    def build(h: JobHarness) -> None:
        builder = FileSink.for_row_format(str(folder), encoder or JsonLinesEncoder())
        builder = builder.with_bucket_assigner(lambda record: "")
        if compression:
            builder = builder.with_compression(compression)
        h.source("in").sink_to(builder.build()).uid("files")

    return build


def records_of(folder: Path) -> list[Any]:
    found = []
    for path in sorted(folder.glob("part-*")):
        content = path.read_bytes()
        text = gzip.decompress(content) if path.suffix == ".gz" else content
        found += [json.loads(line) for line in text.decode().splitlines()]
    return sorted(found)


@pytest.mark.parametrize(("before", "after"), [(None, "gzip"), ("gzip", None)])
def test_an_open_file_is_finished_in_its_first_format(tmp_path: Path, before: Any, after: Any) -> None:
    with JobHarness() as h:
        writing(tmp_path, before)(h)
        h.push("in", 1, 2)
        snapshot = h.snapshot()
    with JobHarness.restore_into(snapshot, writing(tmp_path, after)) as h:
        (change,) = h._driver.master.checkpoints.changes
        assert "the format changed from" in str(change)
        h.push("in", 3)
        h.snapshot()
        h.close("in")
        h.run()
    assert len(list(tmp_path.glob("part-*"))) == 2
    assert records_of(tmp_path) == [1, 2, 3]


def test_an_open_file_in_a_former_folder_is_finished_there(tmp_path: Path) -> None:
    with JobHarness() as h:
        writing(tmp_path / "a", None)(h)
        h.push("in", 1)
        snapshot = h.snapshot()
    with JobHarness.restore_into(snapshot, writing(tmp_path / "b", None)) as h:
        h.push("in", 2)
        h.close("in")
        h.run()
    assert (records_of(tmp_path / "a"), records_of(tmp_path / "b")) == ([1], [2])


def test_an_open_file_continues_if_nothing_has_changed(tmp_path: Path) -> None:
    with JobHarness() as h:
        writing(tmp_path, "gzip")(h)
        h.push("in", 1)
        snapshot = h.snapshot()
    with JobHarness.restore_into(snapshot, writing(tmp_path, "gzip")) as h:
        assert h._driver.master.checkpoints.changes == []
        h.push("in", 2)
        h.close("in")
        h.run()
    assert len(list(tmp_path.glob("part-*"))) == 1
    assert records_of(tmp_path) == [1, 2]


def test_text_after_json_starts_a_new_file(tmp_path: Path) -> None:
    with JobHarness() as h:
        writing(tmp_path, None)(h)
        h.push("in", {"a": 1})
        snapshot = h.snapshot()
    with JobHarness.restore_into(snapshot, writing(tmp_path, None, Encoder.simple_string_encoder())) as h:
        h.push("in", "text")
        h.close("in")
        h.run()
    assert sorted(path.read_text() for path in tmp_path.glob("part-*")) == ["text\n", '{"a":1}\n']


@pytest.mark.parametrize(
    "encoder",
    [CsvEncoder(["x", "y"]), CsvEncoder(["y", "x"]), CsvEncoder(["x", "y"], CsvDialect(";")), JsonLinesEncoder()],
)
def test_the_name_of_a_format_distinguishes_formats(encoder: Encoder) -> None:
    names = {encoder.format_name(), *(CompressedEncoder(encoder, kind).format_name() for kind in ("gzip", "zstd"))}
    others = {CsvEncoder(["x"]).format_name(), Encoder.simple_string_encoder().format_name()}
    assert len(names) == 3
    assert not names & others


# --- connectors and versions --------------------------------------------------------------------------------------


def test_the_connector_of_a_source_or_sink_is_compared() -> None:
    numbers, values = (meaning_of(operations.Source(s)) for s in (NumberSequenceSource(0, 9), CollectionSource([1])))
    assert "belongs to the connector NumberSequenceSource" in compare(numbers, values).refusal
    files = meaning_of(operations.Sink(FileSink.for_row_format("/tmp/x", JsonLinesEncoder()).build()))
    assert "the operator uses PrintSink now" in compare(files, meaning_of(operations.Sink(PrintSink("")))).refusal
    on_s3 = meaning_of(operations.Sink(FileSink.for_row_format("s3://bucket/x", JsonLinesEncoder()).build()))
    assert "the sink writes to S3 now" in compare(files, on_s3).refusal


def counting(h: JobHarness) -> None:
    h.collect(h.source("in").key_by(lambda r: r).reduce(lambda a, b: a).uid("op"), "out")


def edit_manifest(location: str, **changes: Any) -> None:
    path = Path(location.removeprefix("file://")) / "_metadata"
    manifest = json.loads(path.read_bytes())
    for operator in manifest["operators"]:
        if "version" in changes:
            operator["meaning"]["version"] = changes["version"]
        if changes.get("undescribed"):
            del operator["meaning"]
    if "format_version" in changes:
        manifest["format_version"] = changes["format_version"]
    path.write_bytes(json.dumps(manifest).encode())


def snapshot_of_a_count() -> Any:
    with JobHarness() as h:
        counting(h)
        h.push("in", "a")
        return h.snapshot()


def test_a_snapshot_without_descriptions_is_restored_and_reported() -> None:
    snapshot = snapshot_of_a_count()
    edit_manifest(snapshot.location, format_version=2, undescribed=True)
    with JobHarness.restore_into(snapshot, counting) as h:
        (change,) = h._driver.master.checkpoints.changes
        assert "has format 2, which does not describe the meaning of state" in str(change)
        assert "'op'" in str(change)
        h.push("in", "a")
        assert h.outputs("out") == ["a"]


def test_keyed_state_without_a_description_is_not_dropped_if_the_operator_has_no_key_now() -> None:
    snapshot = snapshot_of_a_count()
    edit_manifest(snapshot.location, format_version=2, undescribed=True)
    with pytest.raises(RestoreRefused, match="the operator has no key now"):
        JobHarness.restore_into(snapshot, lambda h: h.collect(h.source("in").map(str).uid("op"), "out"))


def test_state_of_a_newer_layout_is_refused_by_name() -> None:
    snapshot = snapshot_of_a_count()
    edit_manifest(snapshot.location, version=VERSION + 1)
    with pytest.raises(StateFormatUnsupported, match=rf"uid 'in' .* layout version {VERSION + 1} of a newer Penstock"):
        JobHarness.restore_into(snapshot, counting)


def test_a_snapshot_of_a_newer_format_is_refused_with_its_version() -> None:
    snapshot = snapshot_of_a_count()
    edit_manifest(snapshot.location, format_version=99)
    with pytest.raises(StateFormatUnsupported, match=r"has format version 99 \(Penstock .* wrote it\)"):
        JobHarness.restore_into(snapshot, counting)
