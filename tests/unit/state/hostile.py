"""Damage that an attacker could do to a snapshot: changed bytes and values, and names that lead to other folders.

The sizes and checksums match the changed content.
"""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.checksum import checksum_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.state.support import Storage

NAMES = [
    "/tmp/evil", "../evil", "a/../../evil", "..", ".", "", "a/b", ".hidden", "-rf", "a\\b", "C:evil", "a\0b", "a\nb", "ä", "x" * 300,
    "CURRENT/", "MANIFEST-../x", "000012.sst/..", "LOG", "OPTIONS-000009", "IDENTITY",
]  # fmt: skip
"""File names that Penstock never writes into a snapshot."""
_VALUES: list[Any] = [None, -1, 0, 2**31, 2**70, 1.5, "", "../x", [], {}, [1, 2], {"a": 1}, True]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few flipped, cut, repeated or inserted."""
    data = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data)) if data else 0
        how = chance.randrange(5)
        if how == 0 and data:
            data[at] = chance.randrange(256)
        elif how == 1:
            data[at : at + chance.randint(1, 8)] = b""
        elif how == 2:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
        elif how == 3 and data:
            data[at : at + 4] = b"\xdd\xff\xff\xff"[: len(data[at : at + 4])]
        else:
            data[at:at] = data[at : at + chance.randint(1, 40)]
    return bytes(data)


def with_damaged_file(handle: dict[str, Any], storage: Storage, chance: random.Random) -> dict[str, Any]:
    """Return the handle with one of its files damaged in storage, and the size and checksum of the damaged one."""
    handle = copy.deepcopy(handle)
    entry = chance.choice(handle["files"])
    return with_file(handle, storage, entry, damaged(storage.files[entry["path"]], chance))


def with_file(handle: dict[str, Any], storage: Storage, entry: dict[str, Any], content: bytes) -> dict[str, Any]:
    """Give an entry of the handle another content."""
    storage.files[entry["path"]] = content
    entry.update(size=len(content), checksum=checksum_of(content))
    return handle


def with_damaged_value(document: Any, chance: random.Random) -> Any:
    """Return a JSON document in which one value was removed or replaced."""
    document = copy.deepcopy(document)
    parent, key = chance.choice(list(_places(document)))
    if chance.random() < 0.3:
        del parent[key]
    elif isinstance(parent[key], str) and chance.random() < 0.5:
        parent[key] = chance.choice(NAMES)
    else:
        parent[key] = copy.deepcopy(chance.choice(_VALUES))
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)
