from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.connectors import tables
from benchmarks.connectors.case import Case
from benchmarks.connectors.cost import Cost, consumed
from benchmarks.connectors.records import Wrong, parts, rows
from benchmarks.connectors.systems import NAMES, opened
from benchmarks.measures import connectors as measure
from benchmarks.measures.connectors import compared, connectors

SERVERLESS = ("plain", "files", "lakehouse")
DOCS = Path(__file__).parents[3] / "docs"


def test_connectors_without_a_server_are_measured() -> None:
    found = connectors(400, 1, SERVERLESS)
    assert found["problems"] == {}
    assert {"plain.numbers", "files.json-read", "delta.sink", "iceberg.source"} <= found["connectors"].keys()
    for figures in found["connectors"].values():
        assert figures["cpu_us"] > 0 < figures["records_s"]
        assert "bare" not in figures or figures["ratio"] > 0 < figures["bare"]["cpu_us"]


def test_a_run_that_reads_too_few_records_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(count: int) -> Cost:
        return consumed(count, iter(parts(rows(count)[1:])))

    class Opened:
        def __enter__(self) -> list[Case]:
            return [Case("plain.lossy", lossy)]

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(measure, "opened", lambda name, folder: Opened())
    found = connectors(400, 1, ["plain"])
    assert found["connectors"] == {}
    assert found["problems"] == {"plain.lossy": "Wrong: records read: 19, expected 20"}


def test_a_reading_that_arrives_twice_is_wrong() -> None:
    with pytest.raises(Wrong, match="sum of the times"):
        consumed(3, iter([rows(3)[:2], rows(3)[:1]]))


def test_the_fastest_of_the_runs_is_reported() -> None:
    costs = iter([9.0, 3.0, 4.0, 2.0])  # the first run is the warm-up
    figures = compared(Case("some.case", lambda count: Cost(count, next(costs), 1.0)), 100, 3)
    assert figures["cpu_us"] == 20_000
    assert figures["all_cpu_us"] == [30_000, 40_000, 20_000]


def test_an_unknown_system_is_refused() -> None:
    with pytest.raises(SystemExit, match="unknown systems abacus"):
        connectors(20, 1, ["abacus"])


def cells() -> set[str]:
    """Return the names of the cells on all pages."""
    return {name for page in tables.PAGES for name in tables.CELL.findall(page.read_text())}


def test_every_case_without_a_server_has_a_cell(tmp_path: Path) -> None:
    for system in SERVERLESS:
        with opened(system, tmp_path) as cases:
            assert {case.name for case in cases} <= cells()


def test_every_cell_belongs_to_a_measured_system() -> None:
    assert {name.partition(".")[0] for name in cells()} - {"delta", "iceberg"} <= set(NAMES)


def test_every_row_of_the_connectors_table_has_a_cost_and_a_proof() -> None:
    page = (DOCS / "connectors.md").read_text()
    found = re.findall(r"^\| \[?`.*", page, re.MULTILINE)
    assert len(found) > 40
    assert not [row for row in found if not re.search(r"\[tests?\]\(\.\./tests/", row)]
    assert not [row for row in found if not re.search(r"\[tests?\]\([^|]*\) \| [^|]+ \|$", row)]


def result(**more: Any) -> dict[str, Any]:
    figures = {"records": 1000, "cpu_us": 2.512, "records_s": 400_000}
    bare = {"client": "a loop", "cpu_us": 1.256, "records_s": 800_000}
    machine = {
        "processor": "Some",
        "cores": 2,
        "python": "3.11",
        "date": "1 May 2026",
        "load": [0.5],
        "load_after": [1],
    }
    return {
        "connectors": {"kafka.source": {**figures, "bare": bare, "ratio": 2.0}, "plain.print": figures},
        "machine": machine,
        "repetitions": 3,
        "problems": {},
        "whole": True,
        **more,
    }


PAGE = """| `A` | ? <!-- kafka.source --> | ? <!-- plain.print --> |
| `B` | 7 <!-- redis.source --> |
<!-- connectors: all -->
old
<!-- end -->
<!-- connectors: measured -->
<!-- end -->
"""


def test_a_run_replaces_cells_and_blocks() -> None:
    page = tables.rendered(PAGE, result())
    assert page.startswith(
        "| `A` | 2.5 (2.0) <!-- kafka.source --> | 2.5 <!-- plain.print --> |\n| `B` | 7 <!-- redis.source --> |\n"
    )
    assert "| `kafka.source` | 1,000 | 2.5 | 400,000 | a loop | 1.3 | 800,000 | 2.00 |\n| `plain.print` |" in page
    assert (
        "2 cores (Some), Python 3.11, 1 May 2026, load 0.5 before, 1.0 after: the least of 3 runs of each job and each client program, in turn.\n<!-- end -->"
        in page
    )
    assert "old" not in page
    assert tables.rendered(page, result()) == page


def test_a_run_of_some_systems_changes_only_their_cells() -> None:
    page = tables.rendered(PAGE, result(), whole=False)
    assert "2.5 (2.0) <!-- kafka.source -->" in page
    assert "old\n<!-- end -->" in page


def test_a_run_with_problems_changes_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "result.json"
    page.write_text(PAGE)
    monkeypatch.setattr(tables, "PAGES", [page])
    kept.write_text("a line before\n" + json.dumps(result(problems={"kafka.source": "Wrong"})))
    assert tables.main(str(kept)) == 1
    assert page.read_text() == PAGE
    kept.write_text(json.dumps(result()))
    assert tables.main(str(kept)) == 0
    assert "2.5 (2.0)" in page.read_text()
