"""A configuration option: its key, the type of its value, its default, and what it means."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.common.errors import InvalidJob
from penstock.common.time import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
_SIZE = re.compile(r"([0-9]+)\s*([kmg])?i?b?")


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """One configuration key. Files and `Configuration` hold values as text; `parse` converts a text to the value.

    Args:
        kind: name of the type in documentation and errors.
        read: converts the text to the value; raises ValueError.
        default: None means "not set" and is part of the type.
        former_keys: older spellings that are still accepted, as in Flink.
        write: formats a value for the documentation.

    >>> target = duration_option("example.target", timedelta(milliseconds=200), "How long.")
    >>> target.parse("1s")
    Duration(seconds=1)
    """

    key: str
    kind: str
    read: Callable[[str], T]
    default: T
    doc: str
    former_keys: tuple[str, ...] = ()
    write: Callable[[T], str] = lambda value: config_text(value)

    def parse(self, text: str) -> T:
        """Convert a text to the value.

        Raises:
            InvalidJob: the text is not a valid value of this type. The error names the key, the text and the type.
        """
        try:
            return self.read(text)
        except ValueError as error:
            raise InvalidJob(
                f"{self.key} is set to {text!r}, which is not {self.kind}: {error}",
                remedy=f"set {self.key} to {self.kind}, or remove it. Meaning of the option: {self.doc}",
            ) from None


def config_text(value: Any) -> str:
    """Return a value as configuration files spell it.

    >>> config_text(True), config_text(timedelta(seconds=10)), config_text(["a", "b"]), config_text({"k": 1})
    ('true', '10s', 'a;b', 'k:1')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return ";".join(map(config_text, value))
    if isinstance(value, dict):
        pairs = [(str(key), config_text(item)) for key, item in value.items()]
        if any(":" in key or "," in key + item for key, item in pairs):
            return json.dumps(dict(pairs))
        return ",".join(f"{key}:{item}" for key, item in pairs)
    return str(value)


@overload
def text_option(key: str, default: str, doc: str, *former_keys: str) -> ConfigOption[str]: ...
@overload
def text_option(key: str, default: None, doc: str, *former_keys: str) -> ConfigOption[str | None]: ...
def text_option(key: str, default: str | None, doc: str, *former_keys: str) -> ConfigOption[Any]:
    return ConfigOption(key, "a text", str, default, doc, former_keys)


@overload
def int_option(key: str, default: int, doc: str, *former_keys: str, minimum: int = 0) -> ConfigOption[int]: ...
@overload
def int_option(key: str, default: None, doc: str, *former_keys: str, minimum: int = 0) -> ConfigOption[int | None]: ...
def int_option(key: str, default: int | None, doc: str, *former_keys: str, minimum: int = 0) -> ConfigOption[Any]:
    def read(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise ValueError(f"it must be at least {minimum}")
        return value

    return ConfigOption(key, "an integer", read, default, doc, former_keys)


def float_option(key: str, default: float, doc: str, *former_keys: str) -> ConfigOption[float]:
    return ConfigOption(key, "a number", float, default, doc, former_keys)


def fraction_option(key: str, default: float, doc: str, *former_keys: str) -> ConfigOption[float]:
    """Return an option whose value is a share between 0 and 1."""

    def read(text: str) -> float:
        value = float(text)
        if not 0 < value < 1:
            raise ValueError("it must be between 0 and 1")
        return value

    return ConfigOption(key, "a number between 0 and 1", read, default, doc, former_keys)


def flag_option(key: str, default: bool, doc: str, *former_keys: str) -> ConfigOption[bool]:
    return ConfigOption(key, "true or false", read_flag, default, doc, former_keys)


@overload
def size_option(key: str, default: int, doc: str, *former_keys: str, minimum: int = 0) -> ConfigOption[int]: ...
@overload
def size_option(key: str, default: None, doc: str, *former_keys: str, minimum: int = 0) -> ConfigOption[int | None]: ...
def size_option(key: str, default: int | None, doc: str, *former_keys: str, minimum: int = 0) -> ConfigOption[Any]:
    """Return an option whose value is a size in bytes."""

    def read(text: str) -> int:
        value = parse_size(text)
        if value < minimum:
            raise ValueError(f"it must be at least {minimum} bytes")
        return value

    return ConfigOption(key, "a size such as 512kb, 32mb", read, default, doc, former_keys, format_size)


@overload
def duration_option(key: str, default: timedelta, doc: str, *former_keys: str) -> ConfigOption[timedelta]: ...
@overload
def duration_option(key: str, default: None, doc: str, *former_keys: str) -> ConfigOption[timedelta | None]: ...
def duration_option(key: str, default: timedelta | None, doc: str, *former_keys: str) -> ConfigOption[Any]:
    def read(text: str) -> timedelta:
        value = parse_duration(text)
        if value < timedelta(0):
            raise ValueError("it must not be negative")
        return value

    return ConfigOption(key, "a duration such as 500ms, 10s, 5min", read, default, doc, former_keys)


def choice_option(key: str, choices: Sequence[str], default: str, doc: str, *former_keys: str) -> ConfigOption[str]:
    def read(text: str) -> str:
        found = {choice.lower(): choice for choice in choices}.get(text.strip().lower())
        if found is None:
            raise ValueError(f"choose from {', '.join(choices)}")
        return found

    return ConfigOption(key, f"one of {', '.join(choices)}", read, default, doc, former_keys)


def list_option(key: str, doc: str, *former_keys: str) -> ConfigOption[list[str]]:
    return ConfigOption(key, "a list separated by ;", parse_list, [], doc, former_keys)


def map_option(key: str, doc: str, *former_keys: str) -> ConfigOption[dict[str, str]]:
    return ConfigOption(key, "pairs such as key:value,key:value", parse_map, {}, doc, former_keys)


def read_flag(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("write true or false")
    return value


def parse_size(text: str) -> int:
    """Return the bytes of a size in Flink's spelling; units are powers of 1024.

    >>> parse_size("32mb"), parse_size("1 kb"), parse_size("7"), parse_size("2g")
    (33554432, 1024, 7, 2147483648)
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError("write a number and b, kb, mb or gb")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2] or ""]


def format_size(size: int) -> str:
    """Return a size as configuration files spell it, in the largest unit that divides it.

    >>> format_size(32 << 20), format_size(1 << 10), format_size(1000)
    ('32mb', '1kb', '1000b')
    """
    for power, unit in ((30, "gb"), (20, "mb"), (10, "kb")):
        if size and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return f"{size}b"


def parse_list(text: str) -> list[str]:
    """Return the items of `a;b` or of YAML's `[a, b]`.

    >>> parse_list("a; b"), parse_list("['x', y]"), parse_list("")
    (['a', 'b'], ['x', 'y'], [])
    """
    stripped = text.strip()
    is_yaml = stripped.startswith("[") and stripped.endswith("]")
    items = stripped[1:-1].split(",") if is_yaml else stripped.split(";")
    return [item.strip().strip("'\"") for item in items if item.strip()]


def parse_map(text: str) -> dict[str, str]:
    """Return the entries of `key:value,key:value`.

    >>> parse_map("threshold:1.5,unit:F")
    {'threshold': '1.5', 'unit': 'F'}
    >>> parse_map(config_text({"list": "a,b"}))
    {'list': 'a,b'}
    """
    if text.startswith('{"'):
        return {key: config_text(item) for key, item in json.loads(text).items()}
    pairs: dict[str, str] = {}
    for item in text.strip().removeprefix("{").removesuffix("}").split(","):
        if not item.strip():
            continue
        key, colon, value = item.partition(":")
        if not colon:
            raise ValueError(f"{item.strip()!r} has no colon")
        pairs[key.strip()] = value.strip()
    return pairs
