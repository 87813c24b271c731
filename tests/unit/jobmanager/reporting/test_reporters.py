"""Reporters that the configuration selects: those of packages, of the engine, and of users."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.reporting import registry, reporting
from penstock.jobmanager.reporting.log_tails import LogTails
from penstock.metrics.reporter import MetricReporter
from penstock.metrics.store import ScopeReadings
from tests.in_process import InProcess, environment, until


def no_logs() -> LogTails:
    raise AssertionError("no reporter of logs is chosen")


class Kept(MetricReporter):
    """A reporter that records its calls and fails as often as it is configured to."""

    made: ClassVar[list[Kept]] = []

    def open(self, settings: Mapping[str, str]) -> None:
        if settings.get("is_away"):
            raise OSError("the collector is unavailable")
        self.settings = dict(settings)
        self.reports: list[dict[str, object]] = []
        self.fails = int(settings.get("fails", "0"))
        self.is_closed = False
        Kept.made.append(self)

    def report(self, scopes: Sequence[ScopeReadings]) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("nobody listens")
        self.reports.append({name: value for scope in scopes for name, value in scope.values().items()})

    def close(self) -> None:
        self.is_closed = True


def started(session: Session, folder: Path, **settings: str) -> None:
    env = environment(folder, **settings)
    env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").print()
    with executing_on(session):
        env.execute_async("numbers")


OWN = f"{__name__}:Kept"


@pytest.mark.parametrize("key", ["class", "factory.class"])
def test_a_custom_reporter_gets_its_settings_and_all_metrics_until_the_end(tmp_path: Path, key: str) -> None:
    Kept.made.clear()
    session = Session(InProcess())
    own = {
        f"metrics.reporter.mine.{key}": OWN,
        "metrics.reporter.mine.interval": "20ms",
        "metrics.reporter.mine.port": "7",
    }
    started(session, tmp_path, **{"metrics.reporters": "mine, prom"}, **own)
    [kept] = Kept.made
    assert kept.settings["port"] == "7"
    until(lambda: any("numRestarts" in report for report in kept.reports), session.dispatcher.jobs()[-1])
    session.stop()
    assert kept.is_closed
    assert "numRegisteredTaskManagers" in kept.reports[-1]


def test_a_failing_reporter_is_retried_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Kept.made.clear()
    session = Session(InProcess())
    own = {"metrics.reporter.m.class": OWN, "metrics.reporter.m.interval": "10ms", "metrics.reporter.m.fails": "3"}
    with caplog.at_level(logging.WARNING, "penstock.jobmanager.reporting"):
        started(session, tmp_path, **{"metrics.reporters": "m"}, **own)
        until(lambda: bool(Kept.made[0].reports), session.dispatcher.jobs()[-1])
    session.stop()
    assert [record.getMessage() for record in caplog.records if "reporter" in record.getMessage()] == [
        "reporter m cannot report; it retries"
    ]


def test_a_package_provides_a_reporter_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept.made.clear()
    monkeypatch.setattr(registry, "entry_points", lambda group: [EntryPoint("graphite", OWN, group)])
    session = Session(InProcess())
    started(session, tmp_path, **{"metrics.reporters": "graphite"})
    session.stop()
    assert len(Kept.made) == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"metrics.reporters": "grafite"}, "the reporter grafite does not exist"),
        ({"metrics.reporters": "m", "metrics.reporter.m.class": "nothing.there:X"}, "cannot be loaded"),
        ({"metrics.reporters": "m", "metrics.reporter.m.class": "logging:Logger.root"}, "cannot be loaded"),
        ({"metrics.reporters": "m", "metrics.reporter.m.class": "builtins:dict"}, "creates a dict"),
        ({"metrics.reporters": "m", "metrics.reporter.m.class": OWN, "metrics.reporter.m.interval": "soon"}, "soon"),
        ({"metrics.reporters": "m", "metrics.reporter.m.class": OWN, "metrics.reporter.m.interval": "0 s"}, "above 0"),
        ({"traces.reporters": "m", "traces.reporter.m.class": OWN}, "inherits penstock.metrics.reporter.TraceReporter"),
        ({"metrics.reporters": "otel", "metrics.reporter.otel.exporter.endpoint": "collector:4318"}, "write a URL"),
        ({"metrics.reporters": "otel", "metrics.reporter.otel.exporter.protocol": "gRPC"}, "4318"),
    ],
)
def test_invalid_reporters_are_refused_before_the_job_starts(
    tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    session = Session(InProcess())
    with pytest.raises(InvalidJob) as refused:
        started(session, tmp_path, **settings)
    assert says in str(refused.value)
    assert session.dispatcher.jobs() == []
    session.stop()


def test_a_reporter_that_cannot_be_opened_affects_neither_jobs_nor_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Kept.made.clear()
    session = Session(InProcess())
    away = {"metrics.reporter.away.class": OWN, "metrics.reporter.away.is_away": "yes"}
    started(session, tmp_path, **{"metrics.reporters": "away,m", "metrics.reporter.m.class": OWN}, **away)
    session.stop()
    assert [len(kept.reports) for kept in Kept.made] == [1]
    assert "reporter away cannot be opened" in caplog.text


class Stuck(MetricReporter):
    """A reporter that hangs with its collector."""

    def report(self, scopes: Sequence[ScopeReadings]) -> None:
        threading.Event().wait(60)


def test_hung_reporters_delay_the_shutdown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "PATIENCE_S", 0.5)
    names = [f"m{n}" for n in range(20)]
    stuck = {f"metrics.reporter.{name}.class": f"{__name__}:Stuck" for name in names}
    found = reporting.Reporting(Configuration({"metrics.reporters": ",".join(names), **stuck}), list, list, no_logs)
    began = time.monotonic()
    found.close()
    assert time.monotonic() - began < 5


def test_otel_without_its_extra_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.jobmanager.reporting.otel", None)
    session = Session(InProcess())
    with pytest.raises(InvalidJob, match=r"penstock-streaming\[otel\]"):
        started(session, tmp_path, **{"metrics.reporters": "otel"})
    session.stop()
