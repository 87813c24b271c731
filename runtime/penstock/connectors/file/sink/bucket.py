"""Bucket assigners: they choose the directory of a record below the base path."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import repeat
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.common.errors import InvalidJob, UserFunctionError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class BucketContext:
    """The context of a record, with times in ms. It is valid only during the call, because the writer reuses the object."""

    processing_time: int = 0
    watermark: int = 0
    timestamp: int | None = None


class BucketAssigner(ABC):
    """An assigner of records to buckets. A bucket is a relative path, or "" for the base path. Assigners are picklable."""

    ignores_records = False
    """Whether the bucket depends only on processing time and watermark. Column batches then need no conversion to rows."""

    @abstractmethod
    def get_bucket_id(self, element: Any, context: BucketContext, /) -> str: ...

    def assign(self, values: list[Any], timestamps: list[int] | None, context: BucketContext, /) -> str | list[str]:
        """Return one bucket if all records have the same bucket, else a list with the bucket of each record.

        Raises:
            UserFunctionError: the assigner's result is not a bucket. The error names the result and the record.
        """
        get, buckets = self.get_bucket_id, []
        for value, timestamp in zip(values, repeat(None) if timestamps is None else timestamps, strict=False):
            context.timestamp = timestamp
            buckets.append(get(value, context))
        return one_or_each(buckets, values)

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that writes everything into the base path."""
        return BasePathBucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None, *, event_time: bool = False
    ) -> BucketAssigner:
        """Return an assigner whose buckets are times, formatted by a pattern of Java's DateTimeFormatter. The default is one bucket per hour.

        Args:
            timezone_id: such as "Europe/Paris"; UTC by default.
            event_time: use the records' timestamps; the default is processing time, as in Flink.
        >>> assigner = BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd/HHmm")
        >>> assigner.get_bucket_id("any record", BucketContext(processing_time=1_700_000_000_000))
        '2023-11-14/2213'
        """
        return DateTimeBucketAssigner(format_str, timezone_id, event_time=event_time)


class BasePathBucketAssigner(BucketAssigner):
    """An assigner without buckets: all parts lie in the base path."""

    ignores_records = True

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return ""

    def assign(self, values: list[Any], timestamps: list[int] | None, context: BucketContext) -> str | list[str]:
        return ""


class DateTimeBucketAssigner(BucketAssigner):
    """An assigner with one bucket for each value of a time pattern; see `BucketAssigner.date_time_bucket_assigner`."""

    def __init__(self, pattern: str, timezone_id: str | None, *, event_time: bool) -> None:
        self._format = strftime_of(pattern)
        self._zone: tzinfo = UTC if timezone_id is None else _zone(timezone_id)
        self._event_time = event_time
        self.ignores_records = not event_time
        self._second: tuple[int, str] = (-1, "")

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        time = context.processing_time
        if self._event_time:
            if context.timestamp is None:
                raise UserFunctionError(
                    f"record {element!r} has no timestamp, so it has no bucket by event time",
                    remedy="assign timestamps and watermarks before the sink, or use processing time",
                )
            time = context.timestamp
        second = time // 1000
        if self._second[0] != second:
            self._second = (second, datetime.fromtimestamp(second, self._zone).strftime(self._format))
        return self._second[1]

    def assign(self, values: list[Any], timestamps: list[int] | None, context: BucketContext) -> str | list[str]:
        if self._event_time:
            return super().assign(values, timestamps, context)
        return self.get_bucket_id(None, context)


class FunctionBucketAssigner(BucketAssigner):
    """An assigner that calls a function from a record to its bucket."""

    def __init__(self, function: Callable[[Any], str]) -> None:
        self._function = function

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return self._function(element)

    def assign(self, values: list[Any], timestamps: list[int] | None, context: BucketContext) -> str | list[str]:
        return one_or_each(list(map(self._function, values)), values)


_LETTERS = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "DDD": "%j", "HH": "%H",
    "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p", "E": "%a", "EEE": "%a", "EEEE": "%A", "Z": "%z", "ww": "%V",
}  # fmt: skip


def strftime_of(pattern: str) -> str:
    """Return Python's spelling of a Java date pattern.
    >>> strftime_of("yyyy-MM-dd'T'HH--'%'")
    '%Y-%m-%dT%H--%%'
    """
    parts = []
    for quoted, letters, other in re.findall(r"'([^']*)'|([A-Za-z]+)|([^A-Za-z']+)", pattern):
        if letters:
            for run in re.findall(r"((.)\2*)", letters):
                if run[0] not in _LETTERS:
                    raise InvalidJob(
                        f"{run[0]!r} in the date pattern {pattern!r} is not supported", remedy="use yyyy MM dd HH mm ss"
                    )
                parts.append(_LETTERS[run[0]])
        else:
            parts.append((quoted or other).replace("%", "%%"))
    return "".join(parts)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise InvalidJob(f"the time zone {name!r} does not exist", remedy="use a name such as Europe/Paris") from None


def one_or_each(buckets: list[str], values: list[Any]) -> str | list[str]:
    """Return one bucket if all values have the same bucket, else a list with the bucket of each value.

    Each bucket must be a path below the base path, and must not have parts that readers skip.

    Raises:
        UserFunctionError: a bucket is not such a path.
    """
    try:
        different = set(buckets)
    except TypeError:
        raise _no_bucket(buckets, values) from None
    if not all(map(_is_bucket, different)):
        raise _no_bucket(buckets, values)
    return buckets[0] if len(different) == 1 else buckets


def _no_bucket(buckets: list[Any], values: list[Any]) -> UserFunctionError:
    bucket, value = next((b, v) for b, v in zip(buckets, values, strict=True) if not _is_bucket(b))
    return UserFunctionError(
        f"the bucket assigner returned {bucket!r} for {value!r}, which is not a bucket",
        remedy="return a relative path without empty parts and without parts that begin with '.'",
    )


def _is_bucket(bucket: Any) -> bool:
    return isinstance(bucket, str) and (
        not bucket or all(part and not part.startswith(".") for part in bucket.split("/"))
    )
