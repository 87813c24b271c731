"""All options in one table. It defines the valid keys and the list of options in the documentation.

An unknown key that starts with `penstock.`, or that is almost a known key, is an error that names the most similar
known key. Without the error, a misspelt setting would silently have no effect. Other unknown keys are kept: `spark.…`
goes to Spark, a program reads its own settings, and Flink's configurations have keys that Penstock does not need.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from types import ModuleType
from typing import Any

from penstock.common.config.option import ConfigOption
from penstock.common.config.options import (
    autoscaling,
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

_SUBJECTS = {
    "Program": program,
    "Checkpoints and savepoints": checkpointing,
    "State": state,
    "Restarts after a failure": restart,
    "Autoscaling": autoscaling,
    "JobManager and slots": cluster,
    "Memory limits": memory,
    "REST API": rest,
    "High availability": leadership,
    "Tokens and secrets": security,
    "Metrics, traces and archives": observability,
    "Time limits": timeouts,
    "S3": storage,
    "Runners and epochs": execution,
    "Logs": logs,
}
"""Modules of options by the heading of their table in the documentation."""


def _options_of(subject: ModuleType) -> list[ConfigOption[Any]]:
    return [option for option in vars(subject).values() if isinstance(option, ConfigOption)]


OPTIONS: dict[str, ConfigOption[Any]] = {
    option.key: option for subject in _SUBJECTS.values() for option in _options_of(subject)
}
"""Every option by its key, in the order of the documentation."""

FORMER_KEYS: dict[str, str] = {former: option.key for option in OPTIONS.values() for former in option.former_keys}
"""Older spellings -> current key."""

ALMOST_EQUAL = 0.88
"""Smallest similarity (difflib's ratio) of a misspelt key and the key that was meant."""
_ONLY_FLINKS = frozenset(
    {"execution.checkpointing.storage", "jobmanager.memory.off-heap.size", "state.backend.rocksdb.log.dir"}
)
"""Keys of Flink that Penstock does not need and that are almost equal to a known key."""


def check_key(key: str) -> None:
    """Refuse a misspelt key, and any unknown `penstock.…` key.

    Raises:
        InvalidJob: the key is unknown. The error names the key and the most similar known key.
    """
    nearest = meant_key(key)
    if nearest is None and key.startswith("penstock.") and key not in OPTIONS:
        own_keys = [known for known in OPTIONS if known.startswith("penstock.")]
        nearest = difflib.get_close_matches(key, own_keys, n=1, cutoff=0.0)[0]
    if nearest is not None:
        raise InvalidJob(
            f"the option {key!r} does not exist", remedy=f"did you mean {nearest!r}?", location=user_location()
        )


@lru_cache(maxsize=1024)
def meant_key(key: str) -> str | None:
    """Return the known key that a misspelt key almost equals. None means that the key is known, or is not similar to a
    known key.

    >>> meant_key("execution.checkpointing.intervall"), meant_key("execution.checkpointing.interval"), meant_key("my.setting")
    ('execution.checkpointing.interval', None, None)
    """
    if key in OPTIONS or key in FORMER_KEYS or key in _ONLY_FLINKS or key.startswith("spark."):
        return None
    near = difflib.get_close_matches(key, [*OPTIONS, *FORMER_KEYS], n=1, cutoff=ALMOST_EQUAL)
    return FORMER_KEYS.get(near[0], near[0]) if near else None


_FAMILIES = (
    "spark.",
    "metrics.reporter.",
    "traces.reporter.",
    "logs.reporter.",
    "metrics.scope.",
    "state.backend.rocksdb.",
)
"""Beginnings of keys that have an effect, although the table has no option for each of them."""
_NAMESPACES = frozenset(key.partition(".")[0] for key in OPTIONS) - {"spark"}
_ENDS = {
    ".".join(words[first:]): key
    for key in [*OPTIONS, *FORMER_KEYS]
    for words in [key.split(".")]
    for first in range(1, len(words) - 1)
}
"""Known keys without their first words -> the key. A last word alone is left out, because programs may use it too."""


def without_effect(key: str) -> str:
    """Return the reason why a key has no effect. Return an empty text if the key has an effect or a program may read
    it.

    >>> without_effect("execution.checkpoints.every")
    "the configuration key 'execution.checkpoints.every' has no effect, because no such option exists"
    >>> without_effect("checkpoint.interval").partition(". ")[2]
    "Did you mean 'execution.checkpointing.interval'?"
    >>> [without_effect(key) for key in ("my.threshold", "spark.executor.cores", "metrics.reporter.prom.port", "rest.port")]
    ['', '', '', '']
    """
    if key in OPTIONS or key in FORMER_KEYS or key.startswith(_FAMILIES):
        return ""
    near = difflib.get_close_matches(key, _ENDS, n=1, cutoff=ALMOST_EQUAL)
    if not near and key.partition(".")[0] not in _NAMESPACES:
        return ""
    reason = f"the configuration key {key!r} has no effect, because no such option exists"
    meant = _ENDS[near[0]] if near else ""
    return f"{reason}. Did you mean {FORMER_KEYS.get(meant, meant)!r}?" if near else reason


def check_value(key: str, text: str) -> None:
    """Refuse a value that is not of the option's type. Values of unknown keys are not checked."""
    option = OPTIONS.get(FORMER_KEYS.get(key, key))
    if option is not None:
        option.parse(text)


def as_markdown() -> str:
    """Return the options for the documentation: a heading and a table for each subject.

    >>> as_markdown().splitlines()[:3]
    ['### Program', '', '| Key | Value | Default | Meaning |']
    """
    sections = []
    for title, subject in _SUBJECTS.items():
        lines = [f"### {title}", "", "| Key | Value | Default | Meaning |", "| --- | --- | --- | --- |"]
        for option in _options_of(subject):
            kind = option.kind.partition(" such as ")[0]
            default = "" if option.default in (None, [], {}) else f"`{option.write(option.default)}`"
            lines.append(f"| `{option.key}` | {kind} | {default} | {option.doc} |")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)
