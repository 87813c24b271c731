"""`Configuration`: settings as flat keys and texts, and the sources of these settings.

The sources, from lowest to highest priority, are the option's default, `penstock.yaml`, the command line (`-p`, `-D
key=value`) and the program. `load_configuration` returns the first three. The environment then applies the program's
settings.
"""

from __future__ import annotations

import copy
import difflib
import os
import re
import sys
from contextvars import ContextVar, Token
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from penstock.common.config.option import ConfigOption, config_text, read_flag
from penstock.common.config.option_table import check_key, check_value
from penstock.common.errors import InvalidJob
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.user_location import user_location

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping

T = TypeVar("T")

CONFIGURATION_FILE = "penstock.yaml"
CONFIGURATION_FOLDER_VARIABLE = "PENSTOCK_CONF_DIR"
IN_PROCESS_ARGUMENT = "--in-process"
_SIMILAR_ARGUMENT = 0.87
"""Smallest similarity (difflib's ratio) of a misspelt argument."""


class Configuration:
    """Settings by key. Setters return the configuration, so that calls can be chained.

    >>> configuration = Configuration().set_integer("parallelism.default", 4).set_string("penstock.epoch.target", "1s")
    >>> from penstock.common.config import options
    >>> configuration.get(options.PARALLELISM), configuration.get(options.EPOCH_TARGET)
    (4, Duration(seconds=1))
    >>> configuration.set_string("penstock.epoch.taget", "1s")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.common.errors.InvalidJob: [INVALID_JOB] the option 'penstock.epoch.taget' does not exist
    ...did you mean 'penstock.epoch.target'?
    """

    def __init__(self, other: Configuration | Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, str] = {}
        self._explicit: dict[str, Any] = {}
        """The original values from which the texts were made."""
        if other is not None:
            self.add_all(other)

    @staticmethod
    def from_dict(map: Mapping[str, Any]) -> Configuration:
        return Configuration(map)

    def get(self, option: ConfigOption[T]) -> T:
        """Return the value under the option's key or a former key. Without a value, return the option's default.

        Raises:
            InvalidJob: the text is not a valid value of the option's type.
        """
        for key in (option.key, *option.former_keys):
            if key in self._values:
                return option.parse(self._values[key])
        return copy.copy(option.default)

    def set(self, option: ConfigOption[T], value: T) -> Configuration:
        """Set an option. None removes it, so that the default applies again."""
        if value is None:
            self.remove_config(option.key)
            return self
        return self._put(option.key, value)

    def get_string(self, key: str, default_value: str | None) -> str | None:
        return self._values.get(key, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        return self._put(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        return self._read(key, int, "an integer", default_value)

    def set_integer(self, key: str, value: int) -> Configuration:
        return self._put(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        return self._read(key, read_flag, "true or false", default_value)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        return self._put(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        return self._read(key, float, "a number", default_value)

    def set_float(self, key: str, value: float) -> Configuration:
        return self._put(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        text = self._values.get(key)
        return default_value if text is None else bytearray(text, "latin-1")

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        self._put(key, value.decode("latin-1"))
        self._explicit[key] = value
        return self

    def key_set(self) -> builtins.set[str]:
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove a key and return whether it was set."""
        self._explicit.pop(key, None)
        return self._values.pop(key, None) is not None

    def add_all(self, other: Configuration | Mapping[str, Any], prefix: str | None = None) -> Configuration:
        """Add the other settings to this configuration. If a prefix is given, put it before their keys."""
        for key, value in (other._explicit if isinstance(other, Configuration) else other).items():
            self._put(prefix + key if prefix else key, value)
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add all settings to a dict with their original values, so that a number is still a number."""
        target_dict.update(self._explicit)

    def to_dict(self) -> dict[str, str]:
        return dict(self._values)

    @staticmethod
    def parse_list_value(value: str | None) -> list[Any]:
        """Return the items of `a;b` or of a YAML list. None and the empty text have no items.

        >>> Configuration.parse_list_value("a;b"), Configuration.parse_list_value("- 1\\n- b")
        (['a', 'b'], [1, 'b'])
        """
        if not value:
            return []
        try:
            items = yaml.safe_load(value)
        except yaml.YAMLError:
            items = None
        return items if isinstance(items, list) else value.split(";")

    def _put(self, key: str, value: Any) -> Configuration:
        if not isinstance(key, str):
            raise InvalidJob(f"a configuration key is a text, not {key!r}", location=user_location())
        check_key(key)
        text = config_text(value)
        check_value(key, text)
        self._values[key] = text
        self._explicit[key] = value
        return self

    def _read(self, key: str, read: Any, kind: str, default: T) -> T:
        text = self._values.get(key)
        if text is None:
            return default
        try:
            value: T = read(text)
        except ValueError:
            raise InvalidJob(f"{key} is set to {text!r}, which is not {kind}", location=user_location()) from None
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Configuration({self._values!r})"

    def __str__(self) -> str:
        """Return the settings as Flink writes them.

        >>> str(Configuration({"a": 1, "b": True}))
        '{a=1, b=true}'
        """
        return f"{{{', '.join(f'{key}={value}' for key, value in self._values.items())}}}"


_command_line: ContextVar[Mapping[str, str] | None] = ContextVar("penstock.command-line", default=None)
"""Settings of the command line; None if no command of Penstock has started the program."""


def set_command_line(settings: Mapping[str, Any]) -> Token[Mapping[str, str] | None]:
    """Set the command line's settings (`-p`, `-D`) for programs that run in this context. `reset_command_line` undoes it.

    >>> token = set_command_line({"parallelism.default": 3})
    >>> load_configuration().get_integer("parallelism.default", 1)
    3
    >>> reset_command_line(token)
    """
    try:
        settings_of_command_line = Configuration(settings)
    except InvalidJob as error:
        error.location = "the command line"
        raise
    return _command_line.set(settings_of_command_line.to_dict())


def reset_command_line(token: Token[Mapping[str, str] | None]) -> None:
    _command_line.reset(token)


def load_configuration(folder: str | Path | None = None) -> Configuration:
    """Return the settings of the folder's `penstock.yaml`, overridden by the command line.

    If no folder is given, the environment variable `PENSTOCK_CONF_DIR` names the folder.

    The argument `--in-process` of `python job.py` also counts as a setting, even if the program itself parses its
    arguments.

    Raises:
        InvalidJob: the folder that was named has no `penstock.yaml`, or the file is not a mapping of keys to values.
    """
    configuration = Configuration()
    named = folder or os.environ.get(CONFIGURATION_FOLDER_VARIABLE)
    if named:
        path = Path(named) / CONFIGURATION_FILE
        if not path.is_file():
            raise InvalidJob(
                f"the configuration file {path} does not exist",
                remedy=f"create the file, or unset {CONFIGURATION_FOLDER_VARIABLE}",
            )
        configuration.add_all(read_configuration_file(path))
    command_line = _command_line.get()
    if command_line is not None:
        return configuration.add_all(command_line)
    if IN_PROCESS_ARGUMENT in sys.argv[1:]:
        return configuration.set_string("penstock.runner", "in-process")
    for argument in filter(_is_almost_in_process, sys.argv[1:]):
        warn_no_effect(
            f"the argument {argument}", f"write {IN_PROCESS_ARGUMENT} to run the job without Spark", stacklevel=4
        )
    return configuration


def _is_almost_in_process(argument: str) -> bool:
    """Return whether the argument is a misspelt `--in-process`.

    >>> [_is_almost_in_process(word) for word in ("--in-proces", "--in_process", "-in-process", "--in-porcess")]
    [True, True, True, True]
    >>> [_is_almost_in_process(word) for word in ("--in-process", "--in-progress", "--process", "--input", "in-proces")]
    [False, False, False, False, False]
    """
    name, wanted = (re.sub("[-_]", "", word) for word in (argument, IN_PROCESS_ARGUMENT))
    is_similar = difflib.SequenceMatcher(None, name, wanted).ratio() > _SIMILAR_ARGUMENT
    return argument.startswith("-") and name.startswith("in") and is_similar and argument != IN_PROCESS_ARGUMENT


def configuration_file() -> Path | None:
    """Return the configuration file that jobs read, or None without `PENSTOCK_CONF_DIR`."""
    named = os.environ.get(CONFIGURATION_FOLDER_VARIABLE)
    return Path(named) / CONFIGURATION_FILE if named else None


def unread_file(*folders: str | Path) -> str:
    """Return a warning if one of the folders has a `penstock.yaml` that no job reads. Otherwise return an empty text."""
    used = configuration_file()
    for path in [Path(folder) / CONFIGURATION_FILE for folder in folders]:
        if path.is_file() and (used is None or not (used.is_file() and used.samefile(path))):
            folder = path.absolute().parent
            return (
                f"{path} is not read. To use it, set the environment variable {CONFIGURATION_FOLDER_VARIABLE}={folder}"
            )
    return ""


def read_configuration_file(path: Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file. Nested mappings become dotted keys, as in Flink 2."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise InvalidJob(f"{path} is not YAML: {error}", remedy="write one `key: value` on a line") from None
    if not isinstance(content, dict):
        raise InvalidJob(f"{path} holds a {type(content).__name__}", remedy="write one `key: value` on a line")
    flat = _flat(content)
    try:
        Configuration(flat)
    except InvalidJob as error:
        raise InvalidJob(f"{path}: {error.message}", remedy=error.remedy) from None
    return flat


_MAP_OPTIONS = frozenset({"pipeline.global-job-parameters"})


def _flat(content: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in _MAP_OPTIONS:
            flat.update(_flat(value, f"{key}."))
        elif value is not None:
            flat[key] = value
    return flat
