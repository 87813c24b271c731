"""Conversion of a task's answer about a key (`state.peek.stored`) to rows, without the program's classes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.encoding.described import described, described_key
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.encoding.schema import ANY
from penstock.state.peek.stored import NotPeekable, Peeked
from penstock.state.reader import StateRow
from penstock.state.ttl.expiry import TtlCodec

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 300


def row_of(key: Any, name: str, peeked: Peeked) -> StateRow | None:
    """Return the row in the form of `state.reader.read_state`, or None if the key has no state.

    Raises:
        NotPeekable: the answer cannot be read without the program's classes, or the answer is malformed.
    """
    with _reading(name):
        return _row_of(key, name, peeked)


def _row_of(key: Any, name: str, peeked: Peeked) -> StateRow | None:
    if not peeked.items:
        return None
    info, values = peeked.info, AnyCodec(name, "")
    stored = list(map((TtlCodec(values) if info.ttl else values).decode, peeked.items))
    expiry = min(until for until, _ in stored) if info.ttl else None
    found = [described(item[1] if info.ttl else item, info.schema, named=False) for item in stored]
    value: Any = found
    if info.layout == "map":
        map_keys = [described_key(UNTYPED_KEYS.decode(data), info.map_key_schema or ANY) for data in peeked.map_keys]
        value = dict(zip(map_keys, found, strict=True))
    elif info.layout == "value":
        value = found[0]
    return StateRow(key, None, value, expiry)


def sample_key(peeked: Peeked, name: str = "") -> Any:
    """Return the sample of the state's keys. The sample must exist.

    Raises:
        NotPeekable: the sample cannot be read.
    """
    assert peeked.sample is not None
    with _reading(name):
        return described_key(UNTYPED_KEYS.decode(peeked.sample), peeked.key_schema)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn an error of decoders for a malformed answer into the coded error. A decoder can raise any error."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise NotPeekable(
            f"the task's answer about state {name!r} cannot be read without the program's classes: "
            f"{type(error).__name__}: {str(error)[:_SHOWN]}",
            remedy="ask with consistency=checkpoint",
        ) from error
