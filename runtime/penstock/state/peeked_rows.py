"""What a task has given of a key (`state.peek`) as rows, without the program's classes."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.encoding.described import described, described_key
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.encoding.schema import ANY
from penstock.state.peek import NotPeekable, Peeked
from penstock.state.reader import StateRow
from penstock.state.ttl.expiry import TtlCodec


def row_of(key: Any, name: str, peeked: Peeked) -> StateRow | None:
    """As `state.reader.read_state` gives it; None: the key has nothing.

    Raises:
        NotPeekable: the values cannot be read without the program's classes.
    """
    if not peeked.items:
        return None
    info, values = peeked.info, AnyCodec(name, "")
    try:
        stored = list(map((TtlCodec(values) if info.ttl else values).decode, peeked.items))
    except msgspec.DecodeError as error:
        raise NotPeekable(f"state {name!r} cannot be read without the program's classes: {error}") from error
    expiry = min(until for until, _ in stored) if info.ttl else None
    found = [described(item[1] if info.ttl else item, info.schema, named=False) for item in stored]
    value: Any = found
    if info.layout == "map":
        map_keys = [described_key(UNTYPED_KEYS.decode(data), info.map_key_schema or ANY) for data in peeked.map_keys]
        value = dict(zip(map_keys, found, strict=True))
    elif info.layout == "value":
        value = found[0]
    return StateRow(key, None, value, expiry)


def sample_key(peeked: Peeked) -> Any:
    """Only if there is a sample."""
    assert peeked.sample is not None
    return described_key(UNTYPED_KEYS.decode(peeked.sample), peeked.key_schema)
