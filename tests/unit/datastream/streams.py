"""The parts of a recorded stream, for tests."""

from __future__ import annotations

from typing import Any

from penstock.graph.operator import Operator
from penstock.graph.transformation import Transformation
from penstock.taskmanager.operators.factory import create_operator
from penstock.testing.operator_run import OperatorRun


def transformation(stream: Any) -> Transformation:
    assert stream._transformation is not None
    return stream._transformation


def operator_of(stream: Any) -> Operator:
    """Return the operator of the stream's operation."""
    return create_operator(transformation(stream).operation)


def start(stream: Any) -> OperatorRun:
    """Return a subtask of the stream's operator."""
    return OperatorRun(operator_of(stream))
