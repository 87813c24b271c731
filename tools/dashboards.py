"""The Grafana dashboards of the chart. `python -m tools.dashboards` writes them, and a test compares the files with this module.

The three dashboards show all FlinkJobs of a cluster, one job, and the operator. They query the metrics that a job's master
and the operator serve at `GET /metrics` (docs/metrics.md, docs/operator/metrics.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "charts" / "penstock-operator" / "files" / "dashboards"
_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One panel.

    `queries` maps an expression to its legend. `unit` is Grafana's name of the unit. `kind` is `timeseries`, `stat` or `table`.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    about: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def as_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        instant = self.kind != "timeseries"
        targets = [
            {
                "refId": chr(65 + i),
                "expr": expr,
                "legendFormat": legend,
                "datasource": _DATASOURCE,
                "instant": instant,
                "range": not instant,
            }
            | ({"format": "table"} if self.kind == "table" else {})
            for i, (expr, legend) in enumerate(self.queries.items())
        ]
        panel: dict[str, Any] = {
            "id": number,
            "title": self.title,
            "type": self.kind,
            "datasource": _DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {
                "defaults": {"unit": self.unit, "min": 0} if self.kind == "timeseries" else {"unit": self.unit},
                "overrides": [],
            },
            "targets": targets,
        }
        if self.about:
            panel["description"] = self.about
        if self.options:
            panel["options"] = self.options
        return panel


def variable(name: str, query: str, *, many: bool = True) -> dict[str, Any]:
    """Return a dashboard variable whose choices are the values of a label."""
    return {
        "name": name,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        "current": {"text": "All", "value": "$__all"} if many else {},
    }


def dashboard(uid: str, title: str, variables: list[dict[str, Any]], rows: list[list[Panel]]) -> dict[str, Any]:
    panels, y, number = [], 0, 0
    for row in rows:
        x = 0
        for panel in row:
            number += 1
            panels.append(panel.as_json(number, x, y))
            x += panel.width
        assert x <= _WIDTH, title
        y += max(panel.height for panel in row)
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": uid,
        "title": title,
        "tags": ["penstock"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "panels": panels,
        "editable": True,
    }


_FLEET = 'namespace=~"$namespace"'
_JOB = 'job_name="$job"'
_TASK = "penstock_taskmanager_job_task"
_MASTER = "penstock_jobmanager_job"
_CHECKPOINT_AGE = "time() - penstock_flinkjob_last_checkpoint_seconds"


def _fleet_totals() -> list[Panel]:
    return [
        Panel("FlinkJobs", {f"count(penstock_flinkjob_ready{{{_FLEET}}})": ""}, kind="stat", width=6, height=4),
        Panel("Ready", {f"sum(penstock_flinkjob_ready{{{_FLEET}}})": ""}, kind="stat", width=6, height=4),
        Panel(
            "Need manual action",
            {f"sum(penstock_flinkjob_stalled{{{_FLEET}}})": ""},
            kind="stat",
            width=6,
            height=4,
        ),
        Panel(
            "Largest checkpoint age",
            {
                f'max(({_CHECKPOINT_AGE}{{{_FLEET}}}) and on (namespace, name) penstock_flinkjob_phase{{phase="Running"}} == 1)': ""
            },
            "s",
            "stat",
            6,
            4,
        ),
    ]


def _fleet_phases() -> list[Panel]:
    return [
        Panel("Phases", {f"sum by (phase) (penstock_flinkjob_phase{{{_FLEET}}})": "{{phase}}"}, width=12),
        Panel(
            "Failovers in ten minutes",
            {f"increase(penstock_flinkjob_restarts{{{_FLEET}}}[10m]) > 0": "{{namespace}}/{{name}}"},
            width=12,
        ),
    ]


def _fleet_problems() -> list[Panel]:
    return [
        Panel("Not Ready", {f"penstock_flinkjob_ready{{{_FLEET}}} == 0": ""}, kind="table", width=12),
        Panel(
            "Age of the newest checkpoint",
            {f"topk(20, {_CHECKPOINT_AGE}{{{_FLEET}}})": "{{namespace}}/{{name}}"},
            "s",
            width=12,
        ),
    ]


def _fleet_durations() -> list[Panel]:
    return [
        Panel(
            "Downtime of changes (p50, p95)",
            {
                f"histogram_quantile({q}, sum by (le, kind) (rate(penstock_downtime_seconds_bucket[6h])))": f"{{{{kind}}}} p{round(q * 100)}"
                for q in (0.5, 0.95)
            },
            "s",
            width=12,
            about="From the stop of the old incarnation to the first RUNNING of the new one.",
        ),
        Panel(
            "Rescales and savepoints (p95)",
            {
                "histogram_quantile(0.95, sum by (le, outcome) (rate(penstock_rescale_seconds_bucket[6h])))": "rescale {{outcome}}",
                "histogram_quantile(0.95, sum by (le, type, trigger, outcome) (rate(penstock_snapshot_seconds_bucket[6h])))": "{{type}} {{trigger}} {{outcome}}",
            },
            "s",
            width=12,
        ),
    ]


def fleet() -> dict[str, Any]:
    rows = [_fleet_totals(), _fleet_phases(), _fleet_problems(), _fleet_durations()]
    return dashboard(
        "penstock-fleet",
        "Penstock: FlinkJobs",
        [variable("namespace", "label_values(penstock_flinkjob_ready, namespace)")],
        rows,
    )


def _job_totals() -> list[Panel]:
    return [
        Panel("Runs", {f"{_MASTER}_isRunning{{{_JOB}}}": ""}, kind="stat", width=4, height=4),
        Panel("Parallelism", {f"{_MASTER}_parallelism{{{_JOB}}}": ""}, kind="stat", width=4, height=4),
        Panel("Records/s", {f"{_MASTER}_recordsPerSecond{{{_JOB}}}": ""}, "ops", "stat", 4, 4),
        Panel("Restarts", {f"{_MASTER}_numRestarts{{{_JOB}}}": ""}, kind="stat", width=4, height=4),
        Panel("Newest checkpoint, age", {f"{_MASTER}_lastCheckpointAge{{{_JOB}}}": ""}, "ms", "stat", 4, 4),
        Panel("State", {f"{_MASTER}_lastCheckpointFullSize{{{_JOB}}}": ""}, "bytes", "stat", 4, 4),
    ]


def _job_records() -> list[Panel]:
    return [
        Panel(
            "Records/s in, by vertex",
            {f"sum by (task_name) ({_TASK}_numRecordsInPerSecond{{{_JOB}}})": "{{task_name}}"},
            "ops",
        ),
        Panel(
            "Records/s out, by vertex",
            {f"sum by (task_name) ({_TASK}_numRecordsOutPerSecond{{{_JOB}}})": "{{task_name}}"},
            "ops",
        ),
        Panel(
            "Unread",
            {f"{_MASTER}_lag{{{_JOB}}}": "lag"},
            about="Unread records or bytes. Empty if the sources do not report them.",
        ),
    ]


def _job_load() -> list[Panel]:
    return [
        Panel(
            "Busiest subtask",
            {f"max by (task_name) ({_TASK}_busyTimeMsPerSecond{{{_JOB}}}) / 1000": "{{task_name}}"},
            "percentunit",
        ),
        Panel(
            "Back pressure, by vertex",
            {f"avg by (task_name) ({_TASK}_backPressuredTimeMsPerSecond{{{_JOB}}}) / 1000": "{{task_name}}"},
            "percentunit",
        ),
        Panel(
            "Skew of records in",
            {
                f"max by (task_name) ({_TASK}_numRecordsInPerSecond{{{_JOB}}}) / avg by (task_name) ({_TASK}_numRecordsInPerSecond{{{_JOB}}})": "{{task_name}}"
            },
            about="Records of the busiest subtask divided by the mean.",
        ),
    ]


def _job_lag_and_checkpoints() -> list[Panel]:
    return [
        Panel(
            "Event time lag",
            {
                f"time() - {_TASK}_currentInputWatermark{{{_JOB}}} / 1000 > 0": "{{task_name}} #{{subtask_index}}",
                f"time() - {_MASTER}_currentWatermark{{{_JOB}}} / 1000 > 0": "job",
            },
            "s",
        ),
        Panel(
            "Checkpoints: duration",
            {
                f"{_MASTER}_lastCheckpointDuration{{{_JOB}}}": "last",
                f"{_MASTER}_checkpointWaitForCommits{{{_JOB}}}": "waits for commits",
            },
            "ms",
        ),
        Panel(
            "Checkpoints: size",
            {
                f"{_MASTER}_lastCheckpointSize{{{_JOB}}}": "new",
                f"{_MASTER}_lastCheckpointFullSize{{{_JOB}}}": "all",
            },
            "bytes",
        ),
    ]


def _job_restarts_and_memory() -> list[Panel]:
    return [
        Panel(
            "Checkpoints",
            {
                f"{_MASTER}_numberOfCompletedCheckpoints{{{_JOB}}}": "completed",
                f"{_MASTER}_numberOfFailedCheckpoints{{{_JOB}}}": "failed",
            },
        ),
        Panel(
            "Restarts and rescales",
            {
                f"{_MASTER}_numRestarts{{{_JOB}}}": "restarts",
                f"{_MASTER}_numRescales{{{_JOB}}}": "rescales",
                f"{_MASTER}_downtime{{{_JOB}}} / 1000": "downtime (s)",
            },
        ),
        Panel(
            "Python memory of TaskManagers",
            {
                f"penstock_taskmanager_Status_Python_Memory_RSS * on (tm_id) group_left () group by (tm_id) ({_TASK}_numRecordsIn{{{_JOB}}})": "{{tm_id}}"
            },
            "bytes",
        ),
    ]


def job() -> dict[str, Any]:
    rows = [_job_totals(), _job_records(), _job_load(), _job_lag_and_checkpoints(), _job_restarts_and_memory()]
    return dashboard(
        "penstock-job",
        "Penstock: a job",
        [variable("job", f"label_values({_MASTER}_isRunning, job_name)", many=False)],
        rows,
    )


def _operator_totals() -> list[Panel]:
    return [
        Panel("Leads", {"sum(penstock_leader)": ""}, kind="stat", width=6, height=4),
        Panel("Passes/s", {"sum(rate(penstock_reconcile_seconds_count[5m]))": ""}, "ops", "stat", 6, 4),
        Panel(
            "Errors in ten minutes",
            {"sum(increase(penstock_reconcile_errors_total[10m]))": ""},
            kind="stat",
            width=6,
            height=4,
        ),
        Panel(
            "Requests/s to the API server",
            {"sum(rate(penstock_api_requests_total[5m]))": ""},
            "reqps",
            "stat",
            6,
            4,
        ),
    ]


def _operator_passes() -> list[Panel]:
    return [
        Panel(
            "A pass takes (p50, p99)",
            {
                f"histogram_quantile({q}, sum by (le, kind) (rate(penstock_reconcile_seconds_bucket[5m])))": f"{{{{kind}}}} p{round(q * 100)}"
                for q in (0.5, 0.99)
            },
            "s",
        ),
        Panel(
            "Errors by reason",
            {"sum by (kind, reason) (rate(penstock_reconcile_errors_total[5m]))": "{{kind}} {{reason}}"},
            "ops",
        ),
        Panel(
            "Requests by kind",
            {"sum by (verb, kind) (rate(penstock_api_requests_total[5m]))": "{{verb}} {{kind}}"},
            "reqps",
        ),
    ]


def _operator_durations() -> list[Panel]:
    return [
        Panel(
            "Operations (p95)",
            {
                "histogram_quantile(0.95, sum by (le, kind, outcome) (rate(penstock_operation_seconds_bucket[1h])))": "{{kind}} {{outcome}}"
            },
            "s",
            width=12,
        ),
        Panel(
            "Their steps (p95)",
            {
                "histogram_quantile(0.95, sum by (le, kind, step) (rate(penstock_operation_step_seconds_bucket[1h])))": "{{kind}} {{step}}"
            },
            "s",
            width=12,
        ),
    ]


def operator() -> dict[str, Any]:
    rows = [_operator_totals(), _operator_passes(), _operator_durations()]
    return dashboard("penstock-operator", "Penstock: the operator", [], rows)


DASHBOARDS = {"fleet": fleet, "job": job, "operator": operator}


def text_of(name: str) -> str:
    return json.dumps(DASHBOARDS[name](), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
