"""Type variables of functions and streams, for type checkers. The default of each is `Any`."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

IN = TypeVar("IN", default=Any)
"""Input of a function."""
OUT = TypeVar("OUT", default=Any)
"""Output of a function."""
T = TypeVar("T", default=Any)
"""Values of a stream."""
U = TypeVar("U", default=Any)
"""Values of the next stream."""
K = TypeVar("K", default=Any)
"""Keys."""
