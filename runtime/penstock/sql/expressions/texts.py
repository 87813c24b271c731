"""Functions on strings, with positions that start at 1."""

from __future__ import annotations

import hashlib
import re
import zlib
from functools import lru_cache


def substring(text: str, start: int, length: int | None = None) -> str | None:
    """Return a part of the text. A negative start counts from the end. Start 0 counts as 1, as in Flink.

    >>> substring("abc", 2, 1), substring("abc", -2), substring("abc", 0, 2)
    ('b', 'bc', 'ab')
    """
    if length is not None and length < 0:
        return None
    size = len(text)
    begin = start - 1 if start > 0 else 0 if start == 0 else size + start
    if begin < 0 or begin >= size:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Return whether the text matches a pattern of LIKE: `%` for any text, `_` for one character."""
    return _like(pattern, escape).fullmatch(text) is not None


@lru_cache(maxsize=1000)
def _like(pattern: str, escape: str | None) -> re.Pattern[str]:
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            follows = next(characters, None)
            if follows is None or follows not in ("%", "_", escape):
                raise ValueError(f"Invalid escape sequence in the LIKE pattern {pattern!r}")
            parts.append(re.escape(follows))
        else:
            parts.append(".*" if character == "%" else "." if character == "_" else re.escape(character))
    return re.compile("".join(parts), re.DOTALL)


def trim(where: str, characters: str, text: str) -> str:
    if where == "LEADING":
        return text.lstrip(characters)
    return text.rstrip(characters) if where == "TRAILING" else text.strip(characters)


def position(part: str, text: str) -> int:
    return text.find(part) + 1


def left(text: str, length: int) -> str:
    return text[: max(0, length)]


def right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def pad(text: str, length: int, filler: str, *, on_left: bool) -> str | None:
    if length < 0 or filler == "":
        return None
    if len(text) >= length:
        return text[:length]
    missing = length - len(text)
    filling = (filler * (missing // len(filler) + 1))[:missing]
    return filling + text if on_left else text + filling


def initcap(text: str) -> str:
    return re.sub(r"[A-Za-z0-9]+", lambda word: word[0][0].upper() + word[0][1:].lower(), text)


def split_index(text: str, separator: str, index: int) -> str | None:
    if index < 0 or not separator:
        return None
    parts = text.split(separator)
    return parts[index] if index < len(parts) else None


def bucket(value: object) -> int:
    """Return a number that is the same for equal values in all processes. Plans use it to split a hot key."""
    return zlib.crc32(repr(value).encode()) >> 1


def digest(name: str, text: str) -> str:
    return hashlib.new(name, text.encode()).hexdigest()
