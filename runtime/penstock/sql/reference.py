"""The list of the implemented SQL in `docs/sql.md`, generated from the code."""

from __future__ import annotations

import textwrap

from penstock.sql.expressions.compiler import SPECIAL
from penstock.sql.expressions.registry import FUNCTIONS
from penstock.sql.operators import aggregates
from penstock.sql.plan.reading import READERS
from penstock.sql.tables.connectors import CONNECTORS

_COMPUTED = ("STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP")
"""Aggregates that a plan computes from others."""
_INTERNAL = ("/INT", "HASH_CODE", "PROCTIME_MATERIALIZE", "REINTERPRET", "SEARCH", "SUM0", "TRANSLATE3", "WELFORD_M2")
"""Functions that only plans contain."""


def _block(title: str, names: list[str]) -> list[str]:
    return ["", f"{title}:", "", "```text", *textwrap.wrap("  ".join(names), 118, break_on_hyphens=False), "```"]


def as_markdown() -> str:
    """Return the tables of connectors, functions and plan nodes.

    >>> "| `datagen` | yes | no | Generates rows. |" in as_markdown()
    True
    """
    lines = ["| Connector | Reads | Writes | |", "|---|---|---|---|"]
    for name, connector in sorted(CONNECTORS.items()):
        if not connector.is_internal:
            reads, writes = ("yes" if found else "no" for found in connector.modes)
            lines.append(f"| `{name}` | {reads} | {writes} | {connector.note} |")
    functions = sorted({*FUNCTIONS, *SPECIAL} - set(_INTERNAL))
    operators = [name for name in functions if not name[0].isalpha()]
    words = [name for name in functions if name[0].isalpha()]
    lines += _block("Operators", operators) + _block("Functions", words)
    calls = {*aggregates.FUNCTIONS, *_COMPUTED} - set(_INTERNAL)
    lines += _block("Aggregates", sorted(calls)) + _block("Nodes of the plan", sorted(READERS))
    return "\n".join(lines) + "\n"
