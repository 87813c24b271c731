"""All options in one table: what a key may be, and how documentation lists them.

Below `penstock.` an unknown key is an error that names the nearest known one, because a misspelt key is a setting that
silently does not count. Other unknown keys are kept: `spark.…` goes to Spark, `fs.…` and the rest to whoever asks for them.
"""

from __future__ import annotations

import difflib
from typing import Any

from penstock.common.config import options
from penstock.common.config.option import ConfigOption
from penstock.common.errors import InvalidJob
from penstock.common.program.user_location import user_location

OPTIONS: dict[str, ConfigOption[Any]] = {
    option.key: option for option in vars(options).values() if isinstance(option, ConfigOption)
}
"""Every option by its key."""

FORMER_KEYS: dict[str, str] = {former: option.key for option in OPTIONS.values() for former in option.former_keys}
"""Older spellings -> today's key."""


def check_key(key: str) -> None:
    """Refuses a misspelt `penstock.…` key.

    Raises:
        InvalidJob: names the key and the nearest known one.
    """
    if not key.startswith("penstock.") or key in OPTIONS:
        return
    own = [known for known in OPTIONS if known.startswith("penstock.")]
    nearest = difflib.get_close_matches(key, own, n=1, cutoff=0.0)[0]
    raise InvalidJob(f"there is no option {key!r}", remedy=f"did you mean {nearest!r}?", location=user_location())


def check_value(key: str, text: str) -> None:
    """Refuses a value that is not of the option's type; keys that are not known are not looked at."""
    option = OPTIONS.get(FORMER_KEYS.get(key, key))
    if option is not None:
        option.parse(text)


def as_markdown() -> str:
    """The list as a table for the documentation.

    >>> as_markdown().splitlines()[0]
    '| Key | Value | Default | Meaning |'
    """
    lines = ["| Key | Value | Default | Meaning |", "| --- | --- | --- | --- |"]
    for option in OPTIONS.values():
        default = "" if option.default in (None, [], {}) else f"`{option.write(option.default)}`"
        lines.append(f"| `{option.key}` | {option.kind} | {default} | {option.doc} |")
    return "\n".join(lines)
