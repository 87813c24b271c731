"""The event times of the records of a batch: one loop per batch, or none for a field of a columnar batch."""

from __future__ import annotations

import inspect
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.common.errors import PenstockError, RecordFormatError, UserFunctionError
from penstock.common.time import Instant
from penstock.common.watermark_strategy import Assigner, TimestampAssigner
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, ColumnBatch, RowBatch
from penstock.records.columns import column_of
from penstock.records.fields import read_field, shortened
from penstock.taskmanager.operators.user_code import position

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

_INT = {int}


def epoch_ms(time: Any) -> int:
    """Return a point of time in ms since the epoch. Fractions of a millisecond are rounded down, also before 1970.

    Accept int, datetime (naive: UTC), date (midnight UTC), numpy's datetime64 and Instant.

    Raises:
        TypeError: the value has another type, for example None.

    >>> epoch_ms(datetime(2026, 1, 1)), epoch_ms(5), epoch_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500))
    (1767225600000, 5, -1)
    """
    ms = _whole_ms(time)
    if type(ms) is int and MIN_TIMESTAMP <= ms <= MAX_TIMESTAMP:
        return ms
    raise TypeError(f"{time!r} of type {type(time).__name__} is not a point of time")


def _whole_ms(time: Any) -> Any:
    """Return the whole milliseconds. The result is not always a number, because pandas represents a missing time as a datetime."""
    if isinstance(time, datetime):
        moment = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
    if isinstance(time, date):
        return (time - date(1970, 1, 1)).days * _MS_OF["d"]
    if isinstance(time, Instant):
        return time.to_epoch_milli()
    if isinstance(time, np.datetime64):
        return None if np.isnat(time) else int(time.astype("datetime64[ms]").astype(np.int64))
    return int(time.__index__()) if hasattr(time, "__index__") and not isinstance(time, bool) else None


_MS_OF = {"d": 86_400_000, "s": 1000, "ms": 1}
"""Milliseconds in each unit of at least 1 ms."""
_PER_MS = {"us": 1000, "ns": 1_000_000}
"""How often each shorter unit fits into 1 ms."""
_MILLISECOND = datetime(1970, 1, 1, microsecond=1000) - datetime(1970, 1, 1)


class Stamper:
    """The assignment of timestamps. Without an assigner, records keep their timestamps."""

    def __init__(self, assigner: Assigner | None) -> None:
        self._assigner = assigner
        self._field = assigner if isinstance(assigner, str) else None
        self._with_previous: Callable[[Any, int], Any] | None = None
        self._of_value: Callable[[Any], Any] | None = None
        if isinstance(assigner, TimestampAssigner):
            self._with_previous = assigner.extract_timestamp
        elif assigner is not None and not isinstance(assigner, str):
            extract = getattr(assigner, "extract_timestamp", assigner)
            if _takes_previous(extract):
                self._with_previous = extract
            else:
                self._of_value = extract

    def stamp(self, batch: Batch) -> Batch:
        """Return the batch with its timestamps.

        Raises:
            UserFunctionError: the assigner raised an error. The message names the record.
            RecordFormatError: the assigner returned a value that is not a time. The message names the record.
        """
        if self._assigner is None or not len(batch):
            return batch
        if isinstance(batch, ColumnBatch) and self._field is not None:
            return batch.with_timestamps(column_times(batch, self._field))
        rows = batch.rows()
        values = rows.values
        times = read_field(values, self._field) if self._field is not None else self._call(values, rows.timestamps)
        if set(map(type, times)) != _INT:
            times = self._converted(times, values)
        return RowBatch(values, times)

    def _call(self, values: list[Any], previous: list[int] | None) -> list[Any]:
        iterator = iter(values)
        try:
            if self._of_value is not None:
                return list(map(self._of_value, iterator))
            assert self._with_previous is not None
            before = [MIN_TIMESTAMP] * len(values) if previous is None else previous
            return list(map(self._with_previous, iterator, before))
        except PenstockError:
            raise
        except Exception as error:
            value = values[position(values, iterator)]
            raise UserFunctionError(
                f"the timestamp assigner raised {type(error).__name__}: {error} on the record {shortened(value)}",
                remedy="fix the assigner, or filter such records out first",
            ) from error

    def _converted(self, times: list[Any], values: list[Any]) -> list[int]:
        converted: list[int] = []
        for time, value in zip(times, values, strict=True):
            try:
                converted.append(epoch_ms(time))
            except TypeError as error:
                raise RecordFormatError(
                    f"the timestamp {error}: the record is {shortened(value)}",
                    remedy="return ms since the epoch as int, a datetime or an Instant, for every record",
                ) from None
        return converted


def column_times(batch: ColumnBatch, field: str) -> npt.NDArray[np.int64]:
    """Return a field of integers, timestamps or dates as ms since the epoch, for every record.

    Raises:
        RecordFormatError: the field is not a column of times, or a value is null or exceeds 64 bits.
    """
    import pyarrow as pa

    column = column_of(batch, field)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = column.is_null().index(True).as_py()
        record = batch.slice(row, row + 1).columns.to_pylist()[0]
        raise RecordFormatError(
            f"the timestamp field {field!r} is null in the record {shortened(record)}",
            remedy="filter such records out before timestamps are assigned",
        )
    kind = column.type
    if pa.types.is_timestamp(kind):
        unit = kind.unit
    elif pa.types.is_integer(kind) or pa.types.is_date(kind):
        unit = "d" if pa.types.is_date32(kind) else "ms"
    else:
        raise RecordFormatError(
            f"the timestamp field {field!r} has the type {kind}",
            remedy="use an integer column of ms since the epoch, or a timestamp column",
        )
    try:
        longs = column.cast(pa.int32() if unit == "d" else pa.int64()).cast(pa.int64())
        times: npt.NDArray[np.int64] = longs.to_numpy(zero_copy_only=False)
        if unit in _PER_MS:
            return times // _PER_MS[unit]
        return times if unit == "ms" else pa.compute.multiply_checked(longs, _MS_OF[unit]).to_numpy()
    except pa.ArrowInvalid as error:
        raise RecordFormatError(
            f"the timestamp field {field!r} of type {kind} has a value in ms that exceeds 64 bits: {error}",
            remedy="correct the values, or filter such records out before timestamps are assigned",
        ) from error


def _takes_previous(extract: Callable[..., Any]) -> bool:
    """Return whether the function takes (value, record_timestamp) instead of (value)."""
    try:
        parameters = inspect.signature(extract).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(required) > 1
