"""`Row`: a record of ordered, optionally named fields with a kind of change."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class NoSuchField(KeyError, ValueError):
    """An error of a Row that has no field of that name. It is a `ValueError`, too, as in PyFlink."""


class RowKind(Enum):
    """The change of a table that a row describes. Its text is the short form of changelogs.

    >>> str(RowKind.UPDATE_BEFORE)
    '-U'
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]


class Row:
    """A record with positions and optional field names.

    Fields are read and written by position, by name, or as attributes. `Row("a", "b")` is also a factory: called with
    values, it creates rows with these names. Two rows are equal if their values, names and kinds are equal.

    >>> row = Row(station="KJFK", celsius=21.5)
    >>> row.station, row["celsius"], row[0], "station" in row
    ('KJFK', 21.5, 'KJFK', True)
    >>> Reading = Row("station", "celsius")
    >>> Reading("KJFK", 21.5) == row
    True
    >>> Row(1, "two")
    <Row(1, 'two')>
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise InvalidJob(
                "a Row takes positional values or named ones, not both",
                remedy="pass all fields by name, or pass values only and call set_field_names",
            )
        self._row_kind = RowKind.INSERT
        if kwargs:
            self._fields: tuple[str, ...] | None = tuple(kwargs)
            self._values: list[Any] = list(kwargs.values())
        else:
            self._fields = None
            self._values = list(args)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    @classmethod
    def of(cls, values: Sequence[Any], field_names: Sequence[str] | None = None) -> Row:
        """Return a row of these values. This is the fast way for code that creates many rows.

        >>> Row.of([1, 2], ("a", "b"))
        Row(a=1, b=2)
        """
        row = cls.__new__(cls)
        row._row_kind = RowKind.INSERT
        row._fields = None if field_names is None else tuple(field_names)
        row._values = list(values)
        return row

    @classmethod
    def maker(cls, field_names: Sequence[str] | None) -> Callable[[Iterable[Any]], Row]:
        """Return a function that creates a row with these names from the values, for tight loops.

        >>> list(map(Row.maker(["a"]), [(1,), (2,)]))
        [Row(a=1), Row(a=2)]
        """
        names = None if field_names is None else tuple(field_names)

        def make(values: Iterable[Any], new: Callable[[type[Row]], Row] = cls.__new__) -> Row:
            row = new(cls)
            row._row_kind = RowKind.INSERT
            row._fields = names
            row._values = list(values)
            return row

        return make

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields by name.

        Args:
            recursive: rows inside rows, lists and dicts become dicts too.

        Raises:
            InvalidJob: the row has no field names.
        """
        if self._fields is None:
            raise InvalidJob(
                f"{self!r} has no field names, so it cannot become a dict", remedy="name them with set_field_names"
            )
        if recursive:
            return dict(zip(self._fields, map(_rows_to_dicts, self._values), strict=True))
        return dict(zip(self._fields, self._values, strict=True))

    def get_row_kind(self) -> RowKind:
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        self._row_kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        self._fields = tuple(field_names)

    def get_field_names(self) -> list[str] | None:
        return None if self._fields is None else list(self._fields)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values of these fields, in this order.

        >>> Row(a=1, b=2, c=3).get_fields_by_names(["c", "a"])
        [3, 1]
        """
        return [self._values[self._position(name)] for name in names]

    def _position(self, name: str) -> int:
        if self._fields is not None and name in self._fields:
            return self._fields.index(name)
        names = "no field names" if self._fields is None else f"the fields {', '.join(self._fields)}"
        raise NoSuchField(f"no field {name!r}: the row has {names}")

    def __call__(self, *values: Any) -> Row:
        if len(values) > len(self._values):
            raise InvalidJob(f"{len(values)} values for a Row of {len(self._values)} fields {self._values!r}")
        return Row.of(values, self._values)

    def __getitem__(self, item: int | str) -> Any:
        if isinstance(item, str):
            return self._values[self._position(item)]
        return self._values[item]

    def __setitem__(self, item: int | str, value: Any) -> None:
        if isinstance(item, str):
            item = self._position(item)
        self._values[item] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[self._position(name)]
        except (KeyError, ValueError) as error:
            raise AttributeError(error.args[0]) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self._values[self._position(name)] = value

    def __contains__(self, name: object) -> bool:
        """Return whether the name is a field's name, or a value if the fields have no names."""
        return name in (self._values if self._fields is None else self._fields)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return self._key() == other._key()

    def __lt__(self, other: Row) -> bool:
        return self._values < other._values

    def __hash__(self) -> int:
        return hash((tuple(self._values), self._fields))

    def _key(self) -> tuple[object, ...]:
        return (self._values, self._fields, self._row_kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_row, (self._values, self._fields, self._row_kind.value))

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self._values, strict=False))})"


def _rebuild_row(values: list[Any], fields: tuple[str, ...] | None, kind: int) -> Row:
    row = Row.of(values, fields)
    row.set_row_kind(RowKind(kind))
    return row


def _rows_to_dicts(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list | tuple):
        return [_rows_to_dicts(item) for item in value]
    if isinstance(value, dict):
        return {key: _rows_to_dicts(item) for key, item in value.items()}
    return value
