"""`sum`, `min`, `max`, `min_by`, `max_by` of a field as reduce functions, for keyed streams and windows."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import numpy as np

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.records.fields import Field, getter_for, read_one, setter_for, shortened
from penstock.records.order import greater, lesser, python_number

AggregateKind = Literal["sum", "min", "max", "min_by", "max_by"]
_UNFIT = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)


class FieldReduce:
    """A reduce function on one field of a record.

    `sum`, `min` and `max` keep the other fields of the first record. `min_by` and `max_by` keep the whole record with the extreme value. If
    several records have this value, they keep the first one. Values are added and compared by the rules of `FieldAggregate`. A field that
    is None raises an error that names both records.

    >>> FieldReduce("sum", 1).reduce((1, 2, "first"), (1, 5, "second"))
    (1, 7, 'first')
    >>> FieldReduce("max_by", 1).reduce((1, 2, "first"), (1, 5, "second"))
    (1, 5, 'second')
    """

    def __init__(self, kind: AggregateKind, field: Field) -> None:
        if kind not in ("sum", "min", "max", "min_by", "max_by"):
            raise InvalidJob(
                f"the built-in aggregate {kind!r} does not exist", remedy="use sum, min, max, min_by or max_by"
            )
        self.kind = kind
        self.field = field
        self._shape: type | None = None

    def reduce(self, value1: Any, value2: Any) -> Any:
        try:
            if value1.__class__ is not self._shape:
                self._adapt_to(value1)
            old, new = self._get(value1), self._get(value2)
            if old is None or new is None:
                raise TypeError("the field is None")
            kind = self.kind
            if kind == "sum":
                return self._set(value1, _added(old, new))
            chosen = (lesser if kind[:3] == "min" else greater)(old, new)
            if chosen is old:
                return value1
            return self._set(value1, new) if len(kind) == 3 else value2
        except _UNFIT as error:
            self.check(value1)
            self.check(value2)
            raise RecordFormatError(
                f"{self.kind} of the field {self.field!r} raised {type(error).__name__}: {error}: the records are "
                f"{shortened(value1)} and {shortened(value2)}",
                remedy="use a field that every record has, with values that can be added or compared. Filter out records without it, or "
                "set a value",
            ) from error

    def check(self, value: Any) -> None:
        """Check that the record has the field. `reduce` does not read the field of the first record of a key, because this record is not
        combined with another.

        >>> FieldReduce("sum", "m").check({"k": "a"})
        Traceback (most recent call last):
        ...
        penstock.common.errors.RecordFormatError: [RECORD_FORMAT] sum of the field 'm': no field 'm' in the record {'k': 'a'}: it has the fields k
          remedy: name a field that every record has, or map the records into one shape first

        Raises:
            RecordFormatError: the record does not have the field. The error names the fields that the record has.
        """
        try:
            if value.__class__ is not self._shape:
                self._adapt_to(value)
            self._get(value)
        except _UNFIT:
            self._shape = None
            try:
                read_one(value, self.field)
            except RecordFormatError as error:
                error.message = f"{self.kind} of the field {self.field!r}: {error.message}"
                raise

    def check_all(self, values: list[Any]) -> None:
        """Check a whole batch. Each record can be the first one of a window, and `reduce` does not read the field of this record.

        Raises:
            RecordFormatError: a record does not have the field.
        """
        try:
            if values[0].__class__ is not self._shape:
                self._adapt_to(values[0])
            deque(map(self._get, values), maxlen=0)
        except _UNFIT:
            for value in values:
                self.check(value)

    def _adapt_to(self, value: Any) -> None:
        self._get, self._set = getter_for(self.field, value), setter_for(self.field, value)
        self._shape = value.__class__

    def __getstate__(self) -> dict[str, Any]:
        return {"kind": self.kind, "field": self.field, "_shape": None}


_NUMBERS = frozenset({int, float})


def _added(old: Any, new: Any) -> Any:
    """Return the sum. A sum of numpy integers has their type if the sum fits into it, and is an int if numpy would wrap around.

    >>> _added(np.int8(100), np.int8(20)), _added(np.int8(100), np.int8(100))
    (np.int8(120), 200)
    """
    if type(old) in _NUMBERS and type(new) in _NUMBERS:
        return old + new
    if not _can_wrap(old) and not _can_wrap(new):
        return old + new
    exact = python_number(old) + python_number(new)
    if type(old) is not type(new) or isinstance(old, np.bool_):
        return exact
    bounds = np.iinfo(type(old))
    return type(old)(exact) if bounds.min <= exact <= bounds.max else exact


def _can_wrap(value: Any) -> bool:
    return isinstance(value, np.integer | np.bool_) and not isinstance(value, np.timedelta64)
