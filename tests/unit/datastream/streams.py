"""What a recorded stream is made of."""

from __future__ import annotations

from typing import Any

from penstock.graph.transformation import Transformation
from penstock.testing.operator_run import OperatorRun


def transformation(stream: Any) -> Transformation:
    assert stream._transformation is not None
    return stream._transformation  # type: ignore[no-any-return]


def start(stream: Any) -> OperatorRun:
    """A subtask of the stream's operator."""
    operator = transformation(stream).operator
    assert operator is not None
    return OperatorRun(operator)
