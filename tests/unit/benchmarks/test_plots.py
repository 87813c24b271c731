from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import plots


def nexmark(events: int, **queries: float) -> dict[str, Any]:
    return {"workload": "nexmark", "events": events, "queries": queries}


def kept(folder: Path) -> Any:
    return json.loads((folder / "results" / "nexmark.json").read_text())


def test_queries_that_ran_separately_are_merged(tmp_path: Path) -> None:
    plots.save(nexmark(1000, q11=1, q2=2), tmp_path)
    plots.save(nexmark(1000, q2=3, q5=4), tmp_path)
    assert list(kept(tmp_path)["queries"].items()) == [("q2", 3), ("q5", 4), ("q11", 1)]


def test_queries_over_different_events_are_not_merged(tmp_path: Path) -> None:
    plots.save(nexmark(1000, q11=1), tmp_path)
    plots.save(nexmark(2000, q2=3), tmp_path)
    assert kept(tmp_path) == nexmark(2000, q2=3)


def test_every_stored_result_has_its_plot_on_the_page() -> None:
    page = (plots.FOLDER / "README.md").read_text()
    names = [path.stem for path in (plots.FOLDER / "results").glob("*.json")]
    assert names
    assert not [name for name in names if f"]({name}.svg)" not in page or not (plots.FOLDER / f"{name}.svg").exists()]
