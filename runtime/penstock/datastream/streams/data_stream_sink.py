"""`DataStreamSink`: the end of a stream, for what can be set on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.datastream.streams.operator_settings import OperatorSettings

if TYPE_CHECKING:
    from penstock.graph.transformation import Transformation


class DataStreamSink(OperatorSettings):
    """What `sink_to`, `add_sink` and `print` give: name it, give it a uid, set its parallelism."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def __repr__(self) -> str:
        return f"DataStreamSink({self._own('repr').name!r})"
