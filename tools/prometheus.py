"""A real Prometheus, and `promtool`, for tests of alert rules and dashboards."""

from __future__ import annotations

from pathlib import Path

from tools.gobuild import GoModule

MODULE = GoModule(
    directory=Path(__file__).resolve().parent / "prometheus",
    programs={
        "promtool": "github.com/prometheus/prometheus/cmd/promtool",
        "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
    },
    tags="remove_all_sd",  # the service discovery of a dozen clouds is most of the program's size
)
