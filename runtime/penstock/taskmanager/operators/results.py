"""The results of user code: collected over a batch, a watermark or a timer run, and emitted once.

Main results and side results are separate. Each output has one list of values and one list of timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.output_tag import OutputTag
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.graph.operator import Output


class Results:
    """Results that are not emitted yet. Either all of them have timestamps (ms) or none has."""

    __slots__ = ("_output", "sides", "timestamps", "values")

    def __init__(self, output: Output) -> None:
        self._output = output
        self.values: list[Any] = []
        self.timestamps: list[int | None] = []
        self.sides: dict[str, tuple[list[Any], list[int | None]]] = {}

    def collect(self, results: Iterable[Any], timestamp: int | None) -> None:
        """Add the results that user code returned or yielded for one record or timer."""
        values, stamps = self.values, self.timestamps
        for result in results:
            if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                self.side(result[0], result[1], timestamp)
            else:
                values.append(result)
                stamps.append(timestamp)

    def add(self, value: Any, timestamp: int | None) -> None:
        """Add one result for the main output."""
        self.values.append(value)
        self.timestamps.append(timestamp)

    def side(self, tag: OutputTag, value: Any, timestamp: int | None) -> None:
        side = self.sides.get(tag.tag_id)
        if side is None:
            side = self.sides[tag.tag_id] = ([], [])
        side[0].append(value)
        side[1].append(timestamp)

    def flush(self) -> None:
        """Emit and forget all results, the main output first."""
        if self.values:
            values, timestamps = self.values, self.timestamps
            self.values, self.timestamps = [], []
            self._output.emit(_batch(values, timestamps))
        if self.sides:
            sides, self.sides = self.sides, {}
            for tag_id, (values, timestamps) in sides.items():
                self._output.emit_side(tag_id, _batch(values, timestamps))


def _batch(values: list[Any], timestamps: list[int | None]) -> RowBatch:
    return RowBatch(values, None if timestamps[0] is None else timestamps)  # type: ignore[arg-type]
