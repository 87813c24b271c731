"""Input that does not exist, or that does not match the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.streams.data_stream import DataStream
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess, environment
from tests.integration.engine.programs.refusals import nothing_touched, refused


def readings(env: StreamExecutionEnvironment, folder: Path, *lines: str, **options: Any) -> DataStream:
    """Return the stream of a file source with these lines."""
    folder.mkdir()
    (folder / "readings.jsonl").write_text("".join(f"{line}\n" for line in lines))
    source = FileSource.for_record_stream_format(JsonLinesFormat(**options), f"file://{folder}").build()
    return env.from_source(source, None, "readings")


def test_a_missing_input_is_reported(tmp_path: Path) -> None:
    env = environment(tmp_path)
    source = FileSource.for_record_stream_format(JsonLinesFormat(), f"file://{tmp_path}/nowhere").build()
    env.from_source(source, None, "readings").print()
    refusal = refused(env)
    assert refusal.code == "SOURCE"
    assert "nowhere" in refusal.message
    assert refusal.operator == "readings"
    assert refusal.points_to(__file__)
    assert refusal.remedy
    assert nothing_touched(tmp_path)


def test_malformed_lines_go_to_the_side_output(tmp_path: Path) -> None:
    lines = ['{"id": 1}', '{"id": ', "nothing", '{"id": 4}']
    stream = readings(environment(tmp_path), tmp_path / "in", *lines, on_error="side-output")
    rejected = stream.get_side_output(OutputTag("malformed-records")).map(lambda r: (r.line, r.record))
    good = stream.map(lambda value: (0, value["id"]))
    with executing_on(Session(InProcess())), good.union(rejected).execute_and_collect() as found:
        numbered = sorted(found, key=str)
    assert [line for line, _ in numbered] == [0, 0, 2, 3]
    assert len({text for line, text in numbered if line}) == 2


def test_a_malformed_line_is_named(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"restart-strategy.type": "none"})
    readings(env, tmp_path / "in", '{"id": 1}', '{"id": 2}', '{"id": ', '{"id": 4}').print()
    refusal = refused(env)
    assert "RECORD_FORMAT" in refusal.text
    assert "readings.jsonl" in refusal.message
    assert '{"id":' in refusal.message
    assert refusal.operator == "readings"
