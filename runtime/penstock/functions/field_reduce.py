"""`sum`, `min`, `max`, `min_by`, `max_by` of a field, as reduce functions: on keyed streams and in windows."""

from __future__ import annotations

from typing import Any, Literal

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.records.fields import Field, getter_for, setter_for, shortened

AggregateKind = Literal["sum", "min", "max", "min_by", "max_by"]
_UNFIT = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)


class FieldReduce:
    """A reduce function on one field of a record (A22).

    `sum`, `min` and `max` keep the other fields of the first record; `min_by` and `max_by` keep the whole record that
    holds the extreme, the first of equals.

    >>> FieldReduce("sum", 1).reduce((1, 2, "first"), (1, 5, "second"))
    (1, 7, 'first')
    >>> FieldReduce("max_by", 1).reduce((1, 2, "first"), (1, 5, "second"))
    (1, 5, 'second')
    """

    def __init__(self, kind: AggregateKind, field: Field) -> None:
        if kind not in ("sum", "min", "max", "min_by", "max_by"):
            raise InvalidJob(f"no built-in aggregate {kind!r}", remedy="use sum, min, max, min_by or max_by")
        self.kind = kind
        self.field = field
        self._shape: type | None = None

    def reduce(self, value1: Any, value2: Any) -> Any:
        try:
            if value1.__class__ is not self._shape:
                self._get, self._set = getter_for(self.field, value1), setter_for(self.field, value1)
                self._shape = value1.__class__
            old, new = self._get(value1), self._get(value2)
            kind = self.kind
            if kind == "sum":
                return self._set(value1, old + new)
            if not (new < old if kind[:3] == "min" else new > old):
                return value1
            return self._set(value1, new) if len(kind) == 3 else value2
        except _UNFIT as error:
            raise RecordFormatError(
                f"{self.kind} of the field {self.field!r} raised {type(error).__name__}: {error}: the records are "
                f"{shortened(value1)} and {shortened(value2)}",
                remedy="name a field that every record has, whose values can be added or compared; filter records out that have "
                "none, or give them a value",
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"kind": self.kind, "field": self.field, "_shape": None}
