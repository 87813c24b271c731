"""`DataStreamSink`: the sink of a stream, with the settings of its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.datastream.streams.operator_settings import OperatorSettings

if TYPE_CHECKING:
    from penstock.graph.transformation import Transformation


class DataStreamSink(OperatorSettings):
    """Sink that `sink_to`, `add_sink` and `print` return. Use it to set the name, the uid and the parallelism."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def __repr__(self) -> str:
        return f"DataStreamSink({self._own('repr').name!r})"
