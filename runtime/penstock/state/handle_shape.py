"""The shape of a keyed state handle in a manifest.

Handles are dictionaries, because a manifest carries handles and does not interpret their content. Each reader of a handle checks its shape
here first, so that later code can rely on it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.state.decoding import decoding
from penstock.state.key_groups import MAX_PARALLELISM_LIMIT


class _File(msgspec.Struct, kw_only=True):
    path: str
    size: int
    checksum: str
    offset: int | None = None


class _Segment(_File, kw_only=True):
    role: Literal["base", "log", "next"]
    groups: tuple[int, int]
    entries: int


class _Table(_File, kw_only=True):
    name: str


class _State(msgspec.Struct):
    kind: str
    layout: Literal["value", "list", "map", "timer"]
    schema: dict[str, Any]
    ttl: bool = False
    map_key_schema: dict[str, Any] | None = None


class _Handle(msgspec.Struct):
    key_groups: tuple[int, int]
    max_parallelism: int
    states: dict[str, _State]
    files: list[dict[str, Any]]
    key_schema: dict[str, Any] = {}
    number: int = 0
    origins: dict[str, list[tuple[int, int, _State]]] = {}


_FILES: dict[str, Any] = {"hashmap": list[_Segment], "rocksdb": list[_Table]}
BACKENDS = tuple(_FILES)


def check_shape(handle: dict[str, Any]) -> None:
    """Check the shape of a handle.

    Raises:
        CorruptStateFile: a field is missing or has another type, or the key groups are not within the max parallelism.
    """
    with decoding("a handle of keyed state"):
        known = msgspec.convert(handle, _Handle)
        msgspec.convert(known.files, _FILES[handle["backend"]])
        start, end = known.key_groups
        if not (1 <= known.max_parallelism <= MAX_PARALLELISM_LIMIT and 0 <= start <= end + 1 <= known.max_parallelism):
            raise ValueError(f"key groups {start} to {end} of {known.max_parallelism}")
