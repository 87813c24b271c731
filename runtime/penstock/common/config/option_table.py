"""All options in one table. It defines the valid keys and the list of the documentation.

An unknown key that starts with `penstock.` is an error that names the most similar known key. Without the error, a
misspelt setting would have no effect and no message. Other unknown keys are kept: `spark.…` goes to Spark, and any
component can read `fs.…` and the rest.
"""

from __future__ import annotations

import difflib
from typing import Any

from penstock.common.config.option import ConfigOption
from penstock.common.config.options import (
    checkpointing,
    cluster,
    execution,
    leadership,
    logs,
    memory,
    observability,
    program,
    rest,
    restart,
    security,
    state,
    storage,
    timeouts,
)
from penstock.common.errors import InvalidJob
from penstock.common.program.user_location import user_location

_SUBJECTS = (
    program,
    checkpointing,
    state,
    restart,
    cluster,
    memory,
    rest,
    leadership,
    security,
    observability,
    timeouts,
    storage,
    execution,
    logs,
)
OPTIONS: dict[str, ConfigOption[Any]] = {
    option.key: option for subject in _SUBJECTS for option in vars(subject).values() if isinstance(option, ConfigOption)
}
"""Every option by its key, in the order of the documentation."""

FORMER_KEYS: dict[str, str] = {former: option.key for option in OPTIONS.values() for former in option.former_keys}
"""Older spellings -> current key."""


def check_key(key: str) -> None:
    """Refuse a misspelt `penstock.…` key.

    Raises:
        InvalidJob: the key is unknown. The error names the key and the most similar known one.
    """
    if not key.startswith("penstock.") or key in OPTIONS:
        return
    own = [known for known in OPTIONS if known.startswith("penstock.")]
    nearest = difflib.get_close_matches(key, own, n=1, cutoff=0.0)[0]
    raise InvalidJob(
        f"the option {key!r} does not exist", remedy=f"did you mean {nearest!r}?", location=user_location()
    )


def check_value(key: str, text: str) -> None:
    """Refuse a value that is not of the option's type. Values of unknown keys are not checked."""
    option = OPTIONS.get(FORMER_KEYS.get(key, key))
    if option is not None:
        option.parse(text)


def as_markdown() -> str:
    """Return the list of options as a table for the documentation.

    >>> as_markdown().splitlines()[0]
    '| Key | Value | Default | Meaning |'
    """
    lines = ["| Key | Value | Default | Meaning |", "| --- | --- | --- | --- |"]
    for option in OPTIONS.values():
        default = "" if option.default in (None, [], {}) else f"`{option.write(option.default)}`"
        lines.append(f"| `{option.key}` | {option.kind} | {default} | {option.doc} |")
    return "\n".join(lines)
