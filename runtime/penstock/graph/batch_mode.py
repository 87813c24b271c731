"""Batch mode: which jobs use it, and how it changes their operations. Pure.

In batch mode, no result is emitted before all input is read. The only watermark is therefore the final one, and
watermark strategies only assign timestamps. Operators with a key get their input key by key
(`taskmanager.operators.batch_mode`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.common.type_info.type_inference import holds_objects
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.graph.operations import BroadcastProcess, InBatchMode, Operation, Source, TimestampsAndWatermarks

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation
    from penstock.graph.transformation import Input, Transformation


def is_batch(mode: str, transformations: Iterable[Transformation]) -> bool:
    """Return whether a job runs in batch mode.

    Args:
        mode: `execution.runtime-mode`.
    """
    if mode == "AUTOMATIC":
        return all(t.source is None or t.source.bounded for t in transformations)
    return mode == "BATCH"


def batch_operation(transformation: Transformation) -> Operation:
    """Return the operation that batch mode executes."""
    operation = transformation.operation
    if isinstance(operation, Source):
        return replace(operation, strategy=_timestamps_only(operation.strategy))
    if isinstance(operation, TimestampsAndWatermarks):
        return replace(operation, strategy=_timestamps_only(operation.strategy))
    if operation.is_keyed or isinstance(operation, BroadcastProcess):
        return InBatchMode(operation, _element_types(transformation.inputs), key_type=operation.key_type)
    return operation


def _timestamps_only(strategy: Any) -> Any:
    if strategy is None:
        return None
    assigner = strategy.timestamp_assigner
    plain = WatermarkStrategy.no_watermarks()
    return plain if assigner is None else plain.with_timestamp_assigner(assigner)


def _element_types(inputs: list[Input]) -> tuple[TypeInformation | None, ...]:
    """Return the type of each input's values. It is None if the values are builtin, because these need no declared type.
    It is also None if the streams of an input have different types.
    """
    found: dict[int, list[TypeInformation | None]] = {}
    for edge in inputs:
        up = edge.upstream
        found.setdefault(edge.index, []).append(
            up.output_type if edge.side_tag is None else up.side_types.get(edge.side_tag)
        )
    return tuple(_common(found.get(number, [None])) for number in range(max(found, default=-1) + 1))


def _common(types: list[TypeInformation | None]) -> TypeInformation | None:
    first = types[0]
    return first if all(other == first for other in types) and holds_objects(first) else None
