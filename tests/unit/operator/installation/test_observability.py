"""Alerts and dashboards of the chart: current, based on existing metrics, each with a runbook entry."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.jobmanager.process.session.session import Session
from penstock.metrics.prometheus import exposition
from penstock.rest.metric_facts import refresh_metrics
from penstock_operator.process.metrics import Histogram, Metric, Metrics
from tests.in_process import InProcess, environment, until
from tests.unit.operator.installation.test_chart import CHART, ROOT, helm, one, parsed, rendered, template
from tools.dashboards import DASHBOARDS, FOLDER, text_of

__all__ = ["helm"]

ALERTS: dict[str, Any] = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
MONITORING = ["--api-versions", "monitoring.coreos.com/v1"]


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for name, make in DASHBOARDS.items():
        page = make()
        for panel in page["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]
        for variable in page["templating"]["list"][1:]:
            yield f"{name}: {variable['name']}", variable["query"]["query"]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of all metrics that the operator and a running job export."""
    names = set()
    for metric in vars(Metrics()).values():
        if isinstance(metric, Metric):
            names.add(metric.name)
        elif isinstance(metric, Histogram):
            names |= {f"{metric.name}_{part}" for part in ("bucket", "count", "sum")}
    env = environment(tmp_path_factory.mktemp("job"))
    source = DataGeneratorSource(int, None, 1_000.0)
    now = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: time.time_ns() // 10**6
    )
    env.from_source(source, now, "numbers").key_by(lambda n: n % 7).map(str).print()
    session = Session(InProcess())
    with executing_on(session):
        env.execute_async("numbers")
    [master] = session.dispatcher.jobs()
    gateway = DispatcherGateway(session.dispatcher, {}, session.cluster.task_managers, lambda: None)
    try:
        until(lambda: (master.checkpoints.coordinator.history.overview()["counts"]["completed"]) > 0, master)
        until(lambda: bool(master.metrics.usage_by_slot()), master)

        def shown() -> str:
            refresh_metrics(gateway)
            return exposition(gateway.metrics.collect())

        until(lambda: "currentWatermark" in shown(), master)  # appears with the first periodic watermark
        names |= set(re.findall(r"^(penstock_\w+)", shown(), re.MULTILINE))
    finally:
        master.request(Operation("cancel")).wait(10)
    return names


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_equals_the_output_of_the_tool(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text_of(name), "python -m tools.dashboards"


def test_only_exported_metrics_are_queried(known: set[str]) -> None:
    queried = {where: set(re.findall(r"penstock_[A-Za-z_]+", expr)) for where, expr in expressions()}
    missing = {where: names - known for where, names in queried.items() if names - known}
    assert not missing


def test_each_alert_has_a_runbook_entry() -> None:
    page = (ROOT / "docs/operator/alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_each_alert_has_a_severity_and_a_description() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_no_rules_are_installed_by_default(helm: Path) -> None:
    found = rendered(helm)
    assert not [m for m in found if m["kind"] == "PrometheusRule" or "-dashboard-" in m["metadata"]["name"]]


def test_the_chart_contains_the_rules_unchanged(helm: Path) -> None:
    wish = ["metrics.alerts.enabled=true", "metrics.alerts.labels.release=prometheus"]
    rule = one(parsed(template(helm, *wish, options=MONITORING).stdout), "PrometheusRule")
    assert rule["spec"] == ALERTS
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_are_disabled_by_name_and_link_to_a_page(helm: Path) -> None:
    wish = [
        "metrics.alerts.enabled=true",
        "metrics.alerts.disabled={PenstockJobBackPressured,FlinkJobStalled}",
        "metrics.alerts.runbookUrl=https://wiki/alerts",
    ]
    rule = one(parsed(template(helm, *wish, options=MONITORING).stdout), "PrometheusRule")
    found = {r["alert"]: r for group in rule["spec"]["groups"] for r in group["rules"]}
    assert set(found) == {r["alert"] for r in RULES} - {"PenstockJobBackPressured", "FlinkJobStalled"}
    assert found["PenstockJobBehind"]["annotations"]["runbook_url"] == "https://wiki/alerts#penstockjobbehind"


def test_dashboards_are_labeled_for_grafanas_sidecar(helm: Path) -> None:
    found = [m for m in rendered(helm, "metrics.dashboards.enabled=true") if "-dashboard-" in m["metadata"]["name"]]
    assert len(found) == len(DASHBOARDS)
    for manifest in found:
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        [(name, text)] = manifest["data"].items()
        assert json.loads(text) == DASHBOARDS[Path(name).stem]()
