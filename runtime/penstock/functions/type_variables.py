"""Type variables of functions and streams, for type checkers: what is not said is `Any`."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

IN = TypeVar("IN", default=Any)
"""What a function is given."""
OUT = TypeVar("OUT", default=Any)
"""What it gives."""
T = TypeVar("T", default=Any)
"""A stream's values."""
U = TypeVar("U", default=Any)
"""Values of the next stream."""
K = TypeVar("K", default=Any)
"""Keys."""
