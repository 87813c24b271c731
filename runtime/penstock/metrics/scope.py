"""Scope formats, which define the beginning of a metric's identifier.

The identifier of a metric is `<system scope>.<user scope>.<name>`. The system scope comes from a format in the
configuration, in which `<variables>` are replaced. If two running copies of a job must not share identifiers, put
`<job_id>` into the formats. Prometheus and REST always have the job id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"<([a-z_]+)>")


class ScopeKind(Enum):
    """The owner of a metric. The value is the end of the configuration key."""

    JOB_MANAGER = "jm"
    JOB_MANAGER_JOB = "jm-job"
    TASK_MANAGER = "tm"
    TASK_MANAGER_JOB = "tm-job"
    TASK = "task"
    OPERATOR = "operator"


_HOST = ("host",)
_JOB = ("job_id", "job_name")
_TASK_MANAGER = ("host", "tm_id")
_TASK = ("task_id", "task_name", "task_attempt_id", "task_attempt_num", "subtask_index")
_OPERATOR = ("operator_id", "operator_name")

VARIABLES: Mapping[ScopeKind, tuple[str, ...]] = {
    ScopeKind.JOB_MANAGER: _HOST,
    ScopeKind.JOB_MANAGER_JOB: _HOST + _JOB,
    ScopeKind.TASK_MANAGER: _TASK_MANAGER,
    ScopeKind.TASK_MANAGER_JOB: _TASK_MANAGER + _JOB,
    ScopeKind.TASK: _TASK_MANAGER + _JOB + _TASK,
    ScopeKind.OPERATOR: _TASK_MANAGER + _JOB + _TASK + _OPERATOR,
}
"""The variables that a format of each kind may use."""

_DEFAULTS: Mapping[ScopeKind, str] = {
    ScopeKind.JOB_MANAGER: "<host>.jobmanager",
    ScopeKind.JOB_MANAGER_JOB: "<host>.jobmanager.<job_name>",
    ScopeKind.TASK_MANAGER: "<host>.taskmanager.<tm_id>",
    ScopeKind.TASK_MANAGER_JOB: "<host>.taskmanager.<tm_id>.<job_name>",
    ScopeKind.TASK: "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>",
    ScopeKind.OPERATOR: "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
}


@dataclass(frozen=True)
class ScopeFormats:
    """The formats of all kinds and the delimiter.

    >>> formats = ScopeFormats.from_configuration({"metrics.scope.jm": "<host>.master"})
    >>> formats.components(ScopeKind.JOB_MANAGER, {"host": "host-7"})
    ['host-7', 'master']
    """

    formats: Mapping[ScopeKind, str]
    delimiter: str = "."

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> ScopeFormats:
        """Read `metrics.scope.*`. Two keys may also have their older spelling (`jm.job`, `tm.job`).

        Raises:
            InvalidJob: a format uses an unknown variable, or the delimiter is empty.
        """
        formats: dict[ScopeKind, str] = {}
        for kind in ScopeKind:
            key = f"metrics.scope.{kind.value}"
            older = key.replace("-", ".")
            formats[kind] = configuration.get(key, configuration.get(older, _DEFAULTS[kind]))
            _check(key, formats[kind], VARIABLES[kind])
        delimiter = configuration.get("metrics.scope.delimiter", ".")
        if not delimiter:
            raise InvalidJob("metrics.scope.delimiter is empty", remedy="set it to one character, such as '.'")
        return cls(formats, delimiter)

    def components(self, kind: ScopeKind, variables: Mapping[str, str]) -> list[str]:
        """Return the parts of the system scope. A variable without a value remains as it is."""
        return [
            _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), part)
            for part in self.formats[kind].split(".")
        ]

    def identifier(self, components: Sequence[str], name: str) -> str:
        """Return the full identifier. The delimiter inside a part becomes `_`, so that the parts remain separate.

        >>> ScopeFormats.from_configuration({}).identifier(["host-7", "v1.2"], "count")
        'host-7.v1_2.count'
        """
        return self.delimiter.join(part.replace(self.delimiter, "_") for part in [*components, name])


def _check(key: str, text: str, known: Sequence[str]) -> None:
    unknown = [name for name in _VARIABLE.findall(text) if name not in known]
    if unknown:
        raise InvalidJob(
            f"{key} is '{text}', but the variable <{unknown[0]}> does not exist",
            remedy="use " + ", ".join(f"<{name}>" for name in known),
        )
