"""Giving the records of a batch their event times: one loop per batch, or none for a field of a columnar batch."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
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
    """A point of time in ms since the epoch, from int, datetime (naive: UTC), numpy's datetime64 or Instant.

    Raises:
        TypeError: something else, for example None.

    >>> epoch_ms(datetime(2026, 1, 1)), epoch_ms(5)
    (1767225600000, 5)
    """
    ms = _whole_ms(time)
    if type(ms) is int and MIN_TIMESTAMP <= ms <= MAX_TIMESTAMP:
        return ms
    raise TypeError(f"{time!r} of type {type(time).__name__} is no point of time")


def _whole_ms(time: Any) -> Any:
    """Not always a number: what pandas has for a missing time is a datetime, too."""
    if isinstance(time, datetime):
        moment = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
    if isinstance(time, Instant):
        return time.to_epoch_milli()
    if isinstance(time, np.datetime64):
        return None if np.isnat(time) else int(time.astype("datetime64[ms]").astype(np.int64))
    return int(time.__index__()) if hasattr(time, "__index__") and not isinstance(time, bool) else None


_MILLISECOND = datetime(1970, 1, 1, microsecond=1000) - datetime(1970, 1, 1)


class Stamper:
    """Assigns timestamps by an assigner; without one, records keep what they carry."""

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
        """The batch with its timestamps.

        Raises:
            UserFunctionError: the assigner raised; RecordFormatError: what it gave is no time. Both name the record.
        """
        if self._assigner is None or not len(batch):
            return batch
        if isinstance(batch, ColumnBatch) and self._field is not None:
            return batch.with_timestamps(self._column(batch, self._field))
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
                remedy="fix the assigner, or filter such records out before it",
            ) from error

    def _converted(self, times: list[Any], values: list[Any]) -> list[int]:
        converted: list[int] = []
        for time, value in zip(times, values, strict=True):
            try:
                converted.append(epoch_ms(time))
            except TypeError as error:
                raise RecordFormatError(
                    f"the timestamp {error}: the record is {shortened(value)}",
                    remedy="give ms since the epoch as int, a datetime or an Instant, for every record",
                ) from None
        return converted

    def _column(self, batch: ColumnBatch, field: str) -> npt.NDArray[np.int64]:
        import pyarrow as pa

        column = column_of(batch, field)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            record = batch.slice(row, row + 1).columns.to_pylist()[0]
            raise RecordFormatError(
                f"the timestamp field {field!r} is null in the record {shortened(record)}",
                remedy="filter such records out before timestamps are assigned",
            )
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"), safe=False)
        elif not pa.types.is_integer(column.type):
            raise RecordFormatError(
                f"the timestamp field {field!r} has the type {column.type}",
                remedy="use an integer column of ms since the epoch, or a timestamp column",
            )
        times: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return times


def _takes_previous(extract: Callable[..., Any]) -> bool:
    """Whether the function takes (value, record_timestamp) rather than (value)."""
    try:
        parameters = inspect.signature(extract).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(required) > 1
