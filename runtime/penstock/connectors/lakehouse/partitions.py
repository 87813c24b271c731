"""Split rows by the values of their partition columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Key = tuple[Any, ...]
"""The values of the partition columns."""

_UNSAFE = re.compile(r"[^\w.\-]", re.ASCII)


def partitions_of(columns: pa.RecordBatch, by: Sequence[pa.Array]) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each combination of values, ordered by its first row. `by` has an array of values for each partition column.

    >>> batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
    >>> [(key, part.to_pydict()) for key, part in partitions_of(batch, [pa.array(["a", "b", "a"])])]
    [(('a',), {'n': [1, 3]}), (('b',), {'n': [2]})]
    """
    if not by:
        yield (), columns
        return
    rows: dict[Key, list[int]] = {}
    codes = [pc.dictionary_encode(array, null_encoding="encode") for array in by]
    for row, key in enumerate(zip(*(code.indices.to_pylist() for code in codes), strict=True)):
        rows.setdefault(key, []).append(row)
    for key, indexes in rows.items():
        values = tuple(code.dictionary[index].as_py() for code, index in zip(codes, key, strict=True))
        yield values, columns if len(rows) == 1 else columns.take(pa.array(indexes))


def directory_of(names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return a directory name for people to read. Readers get a file's values from the table's log, not from its path.

    >>> directory_of(["day", "station"], ["2013-01-01", "a/b"])
    'day=2013-01-01/station=a_b/'
    """
    return "".join(
        f"{_safe(name)}={'__null__' if text is None else _safe(text) or '_'}/"
        for name, text in zip(names, texts, strict=True)
    )


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text)[:100]
