"""One row of the tables of `docs/connectors.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.connectors.cost import Cost

Way = Callable[[int], Cost]
"""Moves so many records, what it needs made ready before, and looks whether all of them came."""


@dataclass(frozen=True)
class Case:
    """
    Args:
        name: `SYSTEM.WHAT`, as the pages' cells have it.
        against: what the bare client does; empty: there is none that does the same.
        share: of the records that the cheapest cases move.
    """

    name: str
    penstock: Way
    bare: Way | None = None
    against: str = ""
    share: float = 1.0
