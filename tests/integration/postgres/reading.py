"""Readers of a source, and their records."""

from __future__ import annotations

import json
from typing import Any

from penstock.connectors.core.source import ReadBounds, ReaderContext, Split

BOUNDS = ReadBounds(max_records=7)


def opened(source: Any, split: Split, position: Any = None) -> Any:
    travelled = Split(split.id, json.loads(json.dumps(split.properties)), split.size)
    return source.create_reader(ReaderContext(0, 1, "in")).open_split(travelled, json.loads(json.dumps(position)))


def take(reader: Any) -> list[int]:
    reader._next_poll = 0.0
    batch = reader.read(BOUNDS)
    return [] if batch is None else [row["id"] for row in batch.rows().values]
