"""`ConfigOptions`: describes a program's own settings, with their types and defaults, as PyFlink does.

The engine's options are in `penstock.common.config.options`. `Configuration.get` reads both kinds of options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.common.config import option as kinds

T = TypeVar("T")


class ConfigOption(kinds.ConfigOption[T]):
    """A key, the type of its values, and its default. `ConfigOptions` creates it."""


class ConfigOptions:
    """Factory of options.

    >>> from penstock.common import Configuration
    >>> limit = ConfigOptions.key("app.limit").int_type().default_value(100)
    >>> Configuration().get(limit), Configuration({"app.limit": "7"}).get(limit)
    (100, 7)
    >>> ConfigOptions.key("app.user").string_type().no_default_value().default
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        return ConfigOptions.OptionBuilder(key)

    @dataclass(frozen=True)
    class OptionBuilder:
        """Second step of building an option: the key is known, and the caller chooses the type."""

        _key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            return ConfigOptions.TypedConfigOptionBuilder(self._key, str)

    @dataclass(frozen=True)
    class TypedConfigOptionBuilder(Generic[T]):
        """Last step of building an option: key and type are known, and the caller chooses the default."""

        _key: str
        _type: type[T]

        def default_value(self, value: T) -> ConfigOption[T]:
            return _option(self._key, self._type, value)

        def no_default_value(self) -> ConfigOption[T | None]:
            return _option(self._key, self._type, None)


_KINDS: dict[type, tuple[str, Callable[[str], Any]]] = {
    bool: ("true or false", kinds.read_flag),
    int: ("an integer", int),
    float: ("a number", float),
    str: ("a text", str),
}


def _option(key: str, of: type, default: Any) -> ConfigOption[Any]:
    kind, read = _KINDS[of]
    return ConfigOption(key, kind, read, default, "a setting of the program")
