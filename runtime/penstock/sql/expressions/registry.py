"""All functions of expressions, by Flink's names."""

from __future__ import annotations

from penstock.sql.expressions import functions, more_functions, nested
from penstock.sql.expressions.functions import Build

FUNCTIONS: dict[str, Build] = {**functions.FUNCTIONS, **more_functions.FUNCTIONS, **nested.FUNCTIONS}
