"""More functions on strings: regular expressions, encodings, URLs and searches. Invalid input gives NULL, as in Flink."""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote_plus, unquote_plus, urlsplit


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a regular expression of Java, or None if it is not valid. Possessive quantifiers and atomic groups are the same in Python."""
    text = re.sub(r"\(\?<([A-Za-z]\w*)>", r"(?P<\1>", pattern)
    try:
        return re.compile(text)
    except re.error:
        return None


def matches(text: str, pattern: str) -> bool:
    found = compiled(pattern)
    return found is not None and found.search(text) is not None


def extract(text: str, pattern: str, group: int = 0) -> str | None:
    """Return a group of the first match.

    >>> extract("foothebar", "foo(.*?)(bar)", 2)
    'bar'
    """
    found = compiled(pattern)
    match = None if found is None else found.search(text)
    if match is None or not 0 <= group <= len(match.groups()):
        return None
    return str(match[group]) if match[group] is not None else None


def extract_all(text: str, pattern: str, group: int = 1) -> tuple[str | None, ...] | None:
    found = compiled(pattern)
    if found is None or not 0 <= group <= found.groups:
        return None
    return tuple(match[group] for match in found.finditer(text))


def replaced(text: str, pattern: str, replacement: str) -> str | None:
    """Return the text with all matches replaced. The replacement is a plain text, as in Flink."""
    found = compiled(pattern)
    return None if found is None else found.sub(lambda match: replacement, text)


def count_of(text: str, pattern: str) -> int | None:
    found = compiled(pattern)
    return None if found is None else sum(1 for _ in found.finditer(text))


def position_of(text: str, pattern: str) -> int | None:
    found = compiled(pattern)
    match = None if found is None else found.search(text)
    return None if found is None else 0 if match is None else match.start() + 1


def part_of(text: str, pattern: str) -> str | None:
    return extract(text, pattern, 0)


def ascii_code(text: str) -> int:
    return text.encode()[0] if text else 0


def character(code: int) -> str:
    return "" if code < 0 else chr(code & 255)


def overlay(text: str, part: str, start: int, length: int | None = None) -> str:
    size = len(part) if length is None else length
    if start <= 0 or start > len(text):
        return text
    end = start - 1 + size if size >= 0 else len(text)
    return text[: start - 1] + part + text[end:]


def located(part: str, text: str, start: int = 1) -> int:
    return text.find(part, start - 1) + 1 if start >= 1 else 0


def instr(text: str, part: str, start: int = 1, nth: int = 1) -> int:
    found = -1
    at = start - 1
    for _ in range(nth):
        found = text.find(part, at)
        if found < 0:
            return 0
        at = found + 1
    return found + 1


def translated(text: str, source: str, target: str) -> str:
    """Return the text with single characters replaced. Characters without a counterpart are removed."""
    table: dict[int, str | None] = {}
    for index, letter in enumerate(source):
        table.setdefault(ord(letter), target[index] if index < len(target) else None)
    return text.translate(table)


def trimmed_both(text: str, characters: str = " ") -> str:
    return text.strip(characters)


def trimmed_left(text: str, characters: str = " ") -> str:
    return text.lstrip(characters)


def trimmed_right(text: str, characters: str = " ") -> str:
    return text.rstrip(characters)


def to_base64(value: Any) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def from_base64(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def hexadecimal(value: Any) -> str:
    if isinstance(value, int):
        return f"{value & (1 << 64) - 1:X}"
    return (value.encode() if isinstance(value, str) else value).hex().upper()


def from_hexadecimal(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}")
    except ValueError:
        return None


def binary(value: int) -> str:
    return f"{value & (1 << 64) - 1:b}"


def url_encoded(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def url_decoded(text: str) -> str | None:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        return None


def url_part(url: str, part: str, key: str | None = None) -> str | None:
    """Return a part of a URL, such as `HOST`, or one value of its `QUERY`.

    >>> url_part("http://a.org/p?k=v#r", "QUERY", "k"), url_part("http://a.org/p?k=v#r", "HOST")
    ('v', 'a.org')
    """
    try:
        found = urlsplit(url)
    except ValueError:
        return None
    if not found.scheme:
        return None
    query = found.query or None
    if key is not None:
        if part != "QUERY" or query is None:
            return None
        match = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", query)
        return None if match is None else match[1]
    parts = {
        "HOST": found.hostname,
        "PATH": found.path,
        "QUERY": query,
        "REF": found.fragment or None,
        "PROTOCOL": found.scheme,
        "FILE": found.path + (f"?{query}" if query else ""),
        "AUTHORITY": found.netloc,
        "USERINFO": found.netloc.rpartition("@")[0] or None,
    }
    return parts.get(part)


def is_alpha(text: str) -> bool:
    return text.isalpha()


def is_digit(text: str) -> bool:
    return text.isdigit()


def is_decimal(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text.strip()) is not None


def encoded(text: str, charset: str) -> bytes:
    return text.encode(charset, "replace")


def decoded(value: bytes, charset: str) -> str:
    return value.decode(charset, "replace")
