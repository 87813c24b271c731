"""Field types shared by the kinds: durations, times, quantities, and the base class."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1_000, "ms": 1}
DURATION_PATTERN = r"^([0-9]{1,12}ms|[0-9]{1,9}s|[0-9]{1,7}(min|m)|[0-9]{1,6}h|[0-9]{1,4}d){1,6}$"
"""No part is much longer than a quarter of a century, so that no sum with a time leaves the calendar."""
_PART = re.compile(r"([0-9]+)(ms|s|min|m|h|d)")


class Api(BaseModel):
    """Base of every API model: camelCase outside, frozen, unknown fields dropped as the API server drops them."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    def to_manifest(self, *, include: set[str] | None = None) -> dict[str, Any]:
        """The JSON form as it is stored in Kubernetes: camelCase, nothing that is null; `include`: only these fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, include=include)


def parse_duration(value: object) -> object:
    """`90s`, `5m`, `1h30m` → timedelta. Anything else is left for pydantic to refuse.

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
    """The shortest spelling that `parse_duration` reads back.

    >>> format_duration(timedelta(seconds=5400))
    '1h30m'
    """
    return "".join(_parts(round(value.total_seconds() * 1000))) or "0s"


def _parts(millis: int) -> Iterator[str]:
    for unit in ("d", "h", "m", "s", "ms"):
        count, millis = divmod(millis, _UNITS[unit])
        if count:
            yield f"{count}{unit}"


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes times."""
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
"""An object the CRD does not describe (a pod template): checked by `api.pod_template` instead, to keep the CRD small."""

Scalars = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}),
]
"""A map to strings, numbers and booleans, as people write configuration in YAML; `api.validation` refuses the rest."""

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

SCHEMES = ("s3", "s3a", "file")
"""Storage that the operator's image and the jobs' base image can read."""

StorageUri = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": rf"^({'|'.join(SCHEMES)})://.+[^/]$", "maxLength": 512}),
]
"""An absolute location (`s3://bucket/prefix`, `file:///data`), without a slash at its end."""
