"""Alert rules and dashboards, tested with a real promtool and a real Prometheus that scrapes a job and the operator."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from penstock.jobmanager.cluster.spark_cluster import free_port
from penstock_operator.process.metrics import Metrics
from tests.integration.dashboard.site import TOKEN, Site
from tools.dashboards import DASHBOARDS
from tools.prometheus import MODULE

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "charts/penstock-operator/files/alerts.yaml"

pytestmark = [pytest.mark.prometheus, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def programs() -> Path:
    return MODULE.ensure()


def test_the_rules_are_valid(programs: Path) -> None:
    done = subprocess.run(
        [programs / "promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_only_under_its_condition(programs: Path, tmp_path: Path) -> None:
    cases = tmp_path / "alerts_test.yaml"
    shutil.copy(ALERTS, tmp_path / "alerts.yaml")
    shutil.copy(Path(__file__).with_name("alerts_test.yaml"), cases)
    done = subprocess.run([programs / "promtool", "test", "rules", cases], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tested = {
        one["alertname"] for case in yaml.safe_load(cases.read_text())["tests"] for one in case["alert_rule_test"]
    }
    assert tested == {
        rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    }


class OperatorsPage(BaseHTTPRequestHandler):
    """The metrics of an operator with one FlinkJob."""

    def do_GET(self) -> None:
        metrics = Metrics()
        metrics.leader.set(to=1)
        metrics.jobs.set("team", "orders", "Running", to=1)
        metrics.ready.set("team", "orders", to=1)
        metrics.stalled.set("team", "orders", to=0)
        metrics.restarts.set("team", "orders", to=2)
        metrics.checkpoint.set("team", "orders", to=time.time() - 7)
        metrics.passes.observe("FlinkJob", value=0.3)
        metrics.operations.observe("Deploy", "Succeeded", value=20.0)
        metrics.steps.observe("Deploy", "Start", value=9.0)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(metrics.render().encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def query(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a query function of a Prometheus that has scraped both several times."""
    folder = tmp_path_factory.mktemp("prometheus")
    site = Site(folder, token=True)
    page = ThreadingHTTPServer(("127.0.0.1", 0), OperatorsPage)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    port = free_port()
    job = {
        "job_name": "job",
        "static_configs": [{"targets": [site.url.removeprefix("http://")]}],
        "authorization": {"credentials": TOKEN},
    }
    operator = {"job_name": "operator", "static_configs": [{"targets": [f"127.0.0.1:{page.server_port}"]}]}
    shutil.copy(ALERTS, folder / "alerts.yaml")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [job, operator],
    }
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    command: list[str | Path] = [
        programs / "prometheus",
        "--config.file",
        folder / "prometheus.yaml",
        "--storage.tsdb.path",
        folder / "data",
    ]
    server = subprocess.Popen(
        [*command, "--web.listen-address", f"127.0.0.1:{port}", "--log.level", "error"], stdout=subprocess.DEVNULL
    )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def ask(path: str, **params: str) -> Any:
        answer = client.get(f"/api/v1/{path}", params=params).json()
        assert answer["status"] == "success", (params, answer)
        return answer["data"]

    try:
        with closing(client):
            _until(lambda: client.get("/-/ready").is_success)
            _until(lambda: bool(ask("query", query="penstock_jobmanager_job_lastCheckpointAge > 0")["result"]))
            _until(lambda: bool(ask("query", query="rate(penstock_reconcile_seconds_count[1m])")["result"]))
            yield ask
    finally:
        server.terminate()
        server.wait(30)
        page.shutdown()
        site.close()


def _until(reached: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if reached():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_job_and_the_operator_are_scraped_with_the_token(query: Any) -> None:
    found = {series["metric"]["job"]: series["value"][1] for series in query("query", query="up")["result"]}
    assert found == {"job": "1", "operator": "1"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_has_a_result(query: Any, name: str) -> None:
    """Compare the empty panels with those whose events never happen in this test."""
    chosen = {"$namespace": "team", "$job": "orders"}
    empty = []
    for panel in DASHBOARDS[name]()["panels"]:
        for target in panel["targets"]:
            expr = target["expr"]
            for variable, value in chosen.items():
                expr = expr.replace(variable, value)
            if not query("query", query=expr)["result"]:
                empty.append(panel["title"])
    assert (
        set(empty)
        <= {
            "fleet": {
                "Not Ready",
                "Failovers in ten minutes",
                "Downtime of changes (p50, p95)",
                "Rescales and savepoints (p95)",
            },
            "job": {"Skew of records in", "Python memory of TaskManagers"},
            "operator": {
                "Errors in ten minutes",
                "Errors by reason",
                "Requests/s to the API server",
                "Requests by kind",
            },
        }[name]
    )


def test_the_rules_are_evaluated_and_no_alert_fires(query: Any) -> None:
    _until(lambda: all(rule["health"] == "ok" for group in query("rules")["groups"] for rule in group["rules"]))
    assert [alert for alert in query("alerts")["alerts"] if alert["state"] == "firing"] == []
