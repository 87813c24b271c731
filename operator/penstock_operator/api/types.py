"""Field types that the kinds share: durations, times, quantities, and the base class."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1_000, "ms": 1}
DURATION_PATTERN = r"^([0-9]{1,12}ms|[0-9]{1,9}s|[0-9]{1,7}(min|m)|[0-9]{1,6}h|[0-9]{1,4}d){1,6}$"
"""Pattern of a duration. Each part is limited to about 114 years, so that a date plus a duration stays in the range of
`datetime`.
"""
_PART = re.compile(r"([0-9]+)(ms|s|min|m|h|d)")


FORMER_NAME = "formerName"
"""Key in the JSON schema of a field that had another name in a released version."""


def renamed(name: str, *, former: str) -> Any:
    """Return the annotation of a status field that had another name in a released version.

    The operator reads the former field if the object does not have the new one. It writes only the new field. The CRD
    contains both, because the API server would otherwise remove the former field before the operator can read it.
    """
    return Field(validation_alias=AliasChoices(name, former), json_schema_extra={FORMER_NAME: former})


class Api(BaseModel):
    """Base class of every API model. Models have camelCase names in JSON, are frozen, and drop unknown fields, as the
    API server does.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    def to_manifest(self, *, include: set[str] | None = None) -> dict[str, Any]:
        """Return the JSON form that Kubernetes stores: names in camelCase, without null fields. `include` limits it
        to these fields.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, include=include)


def parse_duration(value: object) -> object:
    """Parse a duration such as `90s`, `5m` or `1h30m`. Return a value that is not a string unchanged, so that
    pydantic rejects it.

    >>> parse_duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    if not isinstance(value, str):
        return value
    if not re.fullmatch(DURATION_PATTERN, value):
        msg = (
            f"{value!r} is not a duration: write a number and a unit (ms, s, m, h, d), like 30s or 1h30m, at most 9999d"
        )
        raise ValueError(msg)
    return timedelta(milliseconds=sum(int(n) * _UNITS[unit] for n, unit in _PART.findall(value)))


def format_duration(value: timedelta) -> str:
    """Return the shortest form that `parse_duration` can read.

    >>> format_duration(timedelta(seconds=5400))
    '1h30m'
    """
    return "".join(_parts(round(value.total_seconds() * 1000))) or "0s"


def _parts(millis: int) -> Iterator[str]:
    for unit in ("d", "h", "m", "s", "ms"):
        count, millis = divmod(millis, _UNITS[unit])
        if count:
            yield f"{count}{unit}"


@lru_cache(maxsize=1024)  # a status has the same times in most passes
def format_time(value: datetime) -> str:
    """Return the time as RFC 3339 in UTC with whole seconds, the format of Kubernetes."""
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
]

Time = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]

Schemaless = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""An object without a schema in the CRD, such as a pod template. `api.pod_template` checks it instead, which keeps
the CRD small.
"""

Scalars = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}),
]
"""A map whose values are strings, numbers and booleans, like configuration in YAML. `api.validation` rejects other
values.
"""


def check_quantity(value: str | int) -> str | int:
    """Refuse a text that is not a number of bytes."""
    if isinstance(value, bool) or not _BYTES.fullmatch(str(value)):
        msg = f"{value!r} is not a number of bytes such as 1536Mi"
        raise ValueError(msg)
    return value


_BYTES = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?(k|M|G|T|Ki|Mi|Gi|Ti)?")

Quantities = Annotated[
    dict[str, str | int],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$",
            },
        }
    ),
]

Quantity = Annotated[
    str | int,
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$",
        }
    ),
    AfterValidator(check_quantity),
]
"""A number of bytes, as in the resources of a pod."""

SCHEMES = ("s3", "s3a", "file")
"""URI schemes of the storage that the operator's image and the jobs' base image can read."""

StorageUri = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": rf"^({'|'.join(SCHEMES)})://.+[^/]$", "maxLength": 512}),
]
"""An absolute location such as `s3://bucket/prefix` or `file:///data`, without a trailing slash."""
