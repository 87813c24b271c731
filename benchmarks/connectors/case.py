"""One row of the tables of `docs/connectors.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.connectors.cost import Cost

Way = Callable[[int], Cost]
"""A function that prepares its resources, moves this number of records, and checks that all of them arrived."""


@dataclass(frozen=True)
class Case:
    """One case.

    Args:
        name: `SYSTEM.CASE`, as in the cells of the pages.
        against: the work of the bare client. Empty if no client does the same.
        share: its share of the records that the cheapest cases move.
    """

    name: str
    penstock: Way
    bare: Way | None = None
    against: str = ""
    share: float = 1.0
