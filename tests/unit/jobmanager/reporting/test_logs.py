"""Logs that a collector receives: each record once and complete, with its origin and without secrets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.logs.log_file import LogFile, LogFileHandler, LogPart
from penstock.common.logs.log_format import Place, record_format
from penstock.common.logs.redaction import Redaction
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.reporting.log_entries import entries
from penstock.jobmanager.reporting.log_tails import LogTails
from penstock.metrics.reporter import LogEntry
from penstock.rest import facts
from penstock.rest.errors import Unavailable
from tests.in_process import InProcess, environment, until
from tests.unit.jobmanager.reporting.otlp_receiver import OtlpReceiver, attributes

PLACE = Place("bc0b", "orders", 2, 3, "Totals", "totals")


def written(form: str, place: Place | None = PLACE, error: bool = False) -> str:
    record = logging.LogRecord("my.module", logging.WARNING, "", 1, "late by %d [s]: #7", (5,), None)
    record.created, record.msecs = 1769860800.25, 250.0
    if error:
        record.exc_text = "Traceback (most recent call last)\n  File x\nValueError: no"
    return record_format(form, Redaction(), lambda: place).format(record)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_record_is_parsed_with_its_location(form: str) -> None:
    (entry,) = entries(written(form, error=True), {"tm_id": "tm-0"})
    assert (entry.time, entry.level, entry.logger) == (1769860800250, "WARNING", "my.module")
    assert entry.message == "late by 5 [s]: #7"
    assert entry.details.startswith("Traceback")
    assert entry.details.endswith("ValueError: no")
    labels = dict(entry.labels)
    assert (labels.pop("job_id", "bc0b"), labels.pop("operator_id", "totals")) == ("bc0b", "totals")
    assert labels == {
        "tm_id": "tm-0",
        "job_name": "orders",
        "operator_name": "Totals",
        "subtask_index": "3",
        "task_attempt_num": "2",
    }


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("place", "labels"),
    [
        (None, {}),
        (Place("", "orders", 2), {"job_name": "orders", "task_attempt_num": "2"}),
        (Place("", "my orders", 2, 1), {"job_name": "my orders", "task_attempt_num": "2", "subtask_index": "1"}),
    ],
)
def test_a_record_may_have_a_partial_location(form: str, place: Place | None, labels: dict[str, str]) -> None:
    (entry,) = entries(written(form, place), {})
    assert {name: value for name, value in entry.labels.items() if value} == labels
    assert entry.message == "late by 5 [s]: #7"


@pytest.mark.parametrize("operator", ["Sink: Print", "a, b", "Totals"])
def test_names_of_operators_may_contain_the_separator(operator: str) -> None:
    (entry,) = entries(written("text", Place("", "orders", 2, 3, operator)), {})
    assert (entry.labels["job_name"], entry.labels["operator_name"]) == ("orders", operator)


def test_an_ambiguous_name_keeps_the_record_unchanged() -> None:
    (entry,) = entries(written("text", Place("", "or]ders", 2, 3, "#1]")), {})
    assert (entry.logger, entry.message) == ("my.module", "late by 5 [s]: #7")


def test_lines_of_a_jvm_are_records_with_their_stack_traces() -> None:
    text = "26/01/31 12:00:00 WARN TaskSetManager: Lost task\njava.io.IOException: no\n\tat a.B.c(B.java:1)\n"
    (entry,) = entries(f"of a record before\n{text}", {})
    assert (entry.time, entry.level, entry.logger, entry.message) == (
        1769860800000,
        "WARN",
        "TaskSetManager",
        "Lost task",
    )
    assert entry.details == "java.io.IOException: no\n\tat a.B.c(B.java:1)"


@pytest.mark.parametrize("line", ["{}", '{"time": 5}', "{nonsense", "2026-99-99 12:00:00,000 INFO a: b", ""])
def test_other_lines_belong_to_the_previous_record(line: str) -> None:
    (entry,) = entries(f"{written('text', None)}\n{line}\n", {})
    assert entry.details == line


class Cluster:
    """A JobManager and a TaskManager with one log each."""

    def __init__(self, folder: Path, size: int = 1 << 20) -> None:
        self.files: dict[str | None, LogFile] = {
            task_manager: LogFile(str(folder / f"{task_manager or 'jobmanager'}.log"), size)
            for task_manager in (None, "tm-0")
        }
        self.away: set[str | None] = set()

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]:
        if task_manager in self.away:
            raise Unavailable("it does not answer")
        printed = facts.LogFile("tm-0.out", 5, 0)
        return [*LogFiles([self.files[task_manager]]).listing(), printed]

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        return LogFiles([self.files[task_manager]]).read(name, start, most)

    def write(self, text: str, task_manager: str | None = "tm-0") -> None:
        self.files[task_manager].write(text.encode())

    def tails(self) -> LogTails:
        return LogTails(self, lambda: ["tm-0"], lambda: {"orders": "bc0b"})


def messages(found: Sequence[LogEntry]) -> list[str]:
    return [f"{entry.message}|{entry.details}" if entry.details else entry.message for entry in found]


def line(second: int, message: str) -> str:
    return f"2026-01-31 12:00:{second:02},000 INFO a [orders: attempt 2]: {message}\n"


def test_every_record_arrives_once_and_complete(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    tails = cluster.tails()
    cluster.write(line(1, "one") + line(3, "three"))
    cluster.write(line(2, "two"), None)
    assert messages(tails.new()) == ["one"]
    cluster.write("of three\n")
    cluster.write("of it, too\n" + line(4, "four"))
    assert messages(tails.new()) == ["two", "three|of three\nof it, too"]
    assert messages(tails.new()) == ["four"]
    assert tails.new() == []
    cluster.write(line(5, "five"))
    (entry,) = tails.new(last=True)
    assert entry.labels == {"tm_id": "tm-0", "job_name": "orders", "task_attempt_num": "2", "job_id": "bc0b"}


def test_a_task_manager_that_does_not_answer_is_retried_and_delays_no_other(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    tails = cluster.tails()
    cluster.write(line(1, "one"))
    cluster.write(line(2, "two"), None)
    cluster.away = {"tm-0"}
    assert messages(tails.new(last=True)) == ["two"]
    cluster.away = set()
    assert messages(tails.new(last=True)) == ["one"]


def test_a_starting_cluster_has_no_task_managers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.write(line(1, "one"), None)

    def unknown() -> list[str]:
        raise AttributeError("the context is missing")

    assert messages(LogTails(cluster, unknown, dict).new(last=True)) == ["one"]


def test_only_records_that_a_full_file_has_dropped_are_lost(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, size=2000)
    tails = cluster.tails()
    for number in range(200):
        cluster.write(line(number % 60, f"number {number}"))
    found = messages(tails.new(last=True))
    assert found[-1] != ""
    assert 10 < len(found) < 200
    assert "number 199" in found


# --- to a collector -----------------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver(refuses=1)
    yield receiver
    receiver.close()


def test_a_collector_receives_logs_without_secrets(tmp_path: Path, receiver: OtlpReceiver) -> None:
    """This includes records that the collector refused at first."""
    session = Session(InProcess())
    file = LogFile(str(tmp_path / "jobmanager.log"), redaction=Redaction(["hunter22"]))
    session.logs = LogFiles([file])
    handler = LogFileHandler(file)
    handler.setFormatter(record_format("text", Redaction(), lambda: PLACE))
    logger = logging.getLogger("my.module")
    logger.addHandler(handler)
    env = environment(
        tmp_path,
        **{
            "logs.reporters": "otel",
            "logs.reporter.otel.exporter.endpoint": receiver.url,
            "logs.reporter.otel.interval": "20 ms",
            "logs.reporter.otel.service.name": "orders",
        },
    )
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").print()
    try:
        with executing_on(session):
            env.execute_async("orders")
        job = session.dispatcher.jobs()[-1]
        logger.error("the password is %s", "hunter22")
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("it failed")
        ours: Any = lambda: [record for name, record in list(receiver.logs) if name == "my.module"]  # noqa: E731
        until(lambda: len(ours()) == 2, job)
        masked, failed = ours()
    finally:
        logger.removeHandler(handler)
        session.stop()
    assert masked.body.string_value == "the password is ******"
    assert (masked.severity_text, masked.severity_number) == ("ERROR", 17)
    labels = attributes(masked)
    assert (labels["job_id"], labels["operator_name"], labels["subtask_index"]) == (job.job_id, "Totals", "3")
    assert attributes(failed)["exception.stacktrace"].endswith("ValueError: no")
    assert receiver.resources["/v1/logs"][0]["service.name"] == "orders"
    assert len(ours()) == 2


def test_a_class_that_is_no_reporter_of_logs_is_refused(tmp_path: Path) -> None:
    session = Session(InProcess())
    env = environment(tmp_path, **{"logs.reporters": "m", "logs.reporter.m.class": "builtins:dict"})
    env.from_collection([1]).print()
    with executing_on(session), pytest.raises(InvalidJob, match="creates a dict"):
        env.execute("m")
    session.stop()
