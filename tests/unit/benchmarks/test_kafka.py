from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.kafka.outputs import Outputs, difference
from benchmarks.kafka.systems import COUNTS, LIVE, SYSTEMS, UPDATES, chosen
from benchmarks.measures.kafka import ratios

EXPECTED = np.array([2, 0, 3])
"""Expected counts: two readings of sensor 0, none of sensor 1, three of sensor 2."""


def outputs(*rows: tuple[int, ...]) -> Outputs:
    """Return the outputs for rows of (sensor, count) or (sensor, count, diff)."""
    return Outputs(*np.array([(*row, 1)[:3] for row in rows], np.int64).reshape(-1, 3).T)


RIGHT = [(2, 3), (0, 1), (2, 1), (0, 2), (2, 2)]
CHANGES = [(0, 1), (2, 2), (0, 1, -1), (0, 2), (2, 2, -1), (2, 3)]


def test_outputs_with_every_count_once_are_right_in_any_order() -> None:
    assert difference(outputs(*RIGHT), EXPECTED, COUNTS) is None


def test_the_last_count_of_each_update_is_right() -> None:
    assert difference(outputs(*CHANGES), EXPECTED, UPDATES) is None


@pytest.mark.parametrize(
    ("rows", "kind", "wrong"),
    [
        (RIGHT[1:], COUNTS, "1 of 5 counts lost, 0 repeated, 0 that no reading gives"),
        ([], COUNTS, "5 of 5 counts lost, 0 repeated, 0 that no reading gives"),
        ([*RIGHT, (0, 2), (0, 2)], COUNTS, "0 of 5 counts lost, 2 repeated, 0 that no reading gives"),
        ([*RIGHT, (2, 4), (1, 1)], COUNTS, "0 of 5 counts lost, 0 repeated, 2 that no reading gives"),
        ([*RIGHT, (2, 0)], COUNTS, "0 of 5 counts lost, 0 repeated, 1 that no reading gives"),
        (CHANGES[:-2], UPDATES, "1 of 2 counts lost, 0 repeated, 1 that no reading gives"),
        (CHANGES[:2] + CHANGES[3:], UPDATES, "0 of 2 counts lost, 0 repeated, 1 that no reading gives"),
        ([*CHANGES, (2, 3)], UPDATES, "0 of 2 counts lost, 1 repeated, 0 that no reading gives"),
        ([*CHANGES, (2, 3, -1)], UPDATES, "1 of 2 counts lost, 0 repeated, 0 that no reading gives"),
    ],
)
def test_wrong_outputs_are_described(rows: list[tuple[int, ...]], kind: str, wrong: str) -> None:
    assert difference(outputs(*rows), EXPECTED, kind) == wrong


def costs(**of: float) -> dict[str, dict[str, Any]]:
    return {name.replace("_", "-"): {"cpu_us": cost} for name, cost in of.items()}


def test_the_best_peer_is_reported_with_and_without_peers_that_write_less() -> None:
    found = ratios(costs(penstock=4.0, penstock_at_least_once=1.0, flink_sql=8.0, bytewax=20.0, quix=40.0, pathway=5.0))
    assert found == {
        "to_flink_sql": 0.5,
        "best_python_peer": "pathway",
        "to_best_python_peer": 0.8,
        "best_python_peer_of_every_count": "bytewax",
        "to_best_python_peer_of_every_count": 0.2,
    }


def test_ratios_exist_only_for_systems_that_ran() -> None:
    assert ratios(costs(penstock=4.0, quix=40.0)) == {
        "best_python_peer": "quix",
        "to_best_python_peer": 0.1,
        "best_python_peer_of_every_count": "quix",
        "to_best_python_peer_of_every_count": 0.1,
    }
    assert ratios(costs(flink_sql=8.0, quix=40.0)) == {}


def test_systems_are_selected_by_name() -> None:
    assert [system.name for system in chosen(SYSTEMS, ["quix", "penstock"])] == ["penstock", "quix"]
    assert chosen(LIVE, []) == list(LIVE)
    with pytest.raises(
        SystemExit, match=r"unknown system 'flink'; choose from penstock, penstock-at-least-once, flink-sql"
    ):
        chosen(SYSTEMS, ["penstock", "flink"])
