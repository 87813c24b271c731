"""The values of records in the order of declared fields.

Row types, state, formats and sinks all use these rules:

* A record that names its fields (a dict, a `Row` with names, a NamedTuple, a dataclass, a Struct, a pydantic model) is read
  by name. A name that is not declared is refused, and so is a record that lacks a declared name.
* A tuple, a list and a `Row` without names are read by position. Their length must be the number of declared fields.
* Any other object is read by its attributes. It may have more attributes than the declared fields.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any

from penstock.common.types import Row

_MAX_ORDERS = 64
_FIELDS, _VALUES = attrgetter("_fields"), attrgetter("_values")


class FieldMismatch(ValueError):
    """An error of a record that does not have the declared fields. The text names the missing or undeclared field."""

    def __init__(self, record: Any, reason: str) -> None:
        super().__init__(reason)
        self.record = record


class DeclaredFields:
    """The fields that a type, a format or a sink declares.

    Args:
        names: the fields in order.
        optional: fields that a record with names may lack; their value is then None.
        is_positional: the names f0, f1, … only stand for positions. A record that has none of these names is read by position.

    >>> fields = DeclaredFields(["to", "from_"])
    >>> fields.values(Row(from_="A", to="B")), fields.values(("B", "A"))
    (['B', 'A'], ('B', 'A'))
    >>> fields.lists([{"from_": "A", "to": "B"}, {"to": "D", "from_": "C"}])
    [['B', 'D'], ['A', 'C']]
    """

    def __init__(self, names: Iterable[str], *, optional: Collection[str] = (), is_positional: bool = False) -> None:
        self.names = tuple(names)
        self.optional = frozenset(optional)
        self.is_positional = is_positional
        self._orders: dict[tuple[str, ...], list[int | None]] = {}

    def values(self, record: Any) -> Sequence[Any]:
        """Return the values of one record in the declared order.

        Raises:
            FieldMismatch: the record has other fields.
        """
        kind = record.__class__
        if kind is Row or isinstance(record, Row):
            return self._by_names(record, record._fields, record._values)
        if kind is tuple or kind is list:
            return self._counted(record, record)
        if isinstance(record, Mapping):
            return self._mapping_values(record)
        if isinstance(record, tuple):
            return self._by_names(record, declared_names(record), record)
        if isinstance(record, Sequence) and not isinstance(record, str | bytes | bytearray):
            return self._counted(record, record)
        self._check_object(record)
        return [getattr(record, name, None) for name in self.names]

    def lists(self, records: Sequence[Any]) -> list[Sequence[Any]]:
        """Return a list of values for each declared field.

        Raises:
            FieldMismatch: a record has other fields.
        """
        kinds = {record.__class__ for record in records}
        if kinds == {dict}:
            return self._lists_of_dicts(records)
        if len(kinds) == 1 and self._is_class_of_names(next(iter(kinds))):
            return [list(map(attrgetter(name), records)) for name in self.names]
        if kinds == {Row} and len(given := set(map(_FIELDS, records))) == 1:
            return self._lists_of_rows(records, given.pop())
        if kinds - {tuple, list}:
            records = list(map(self.values, records))
        elif not self.fit(records):
            for record in records:
                self._counted(record, record)
        return list(zip(*records, strict=True)) or [()] * len(self.names)

    def fit(self, records: Collection[Any]) -> bool:
        """Return whether all records have as many values as there are fields."""
        return set(map(len, records)) <= {len(self.names)}

    def are_names_of(self, dicts: Collection[dict[Any, Any]]) -> bool:
        """Return whether the keys of every dict are exactly the declared names."""
        if not self.names or not self.fit(dicts):
            return False
        try:
            deque(map(itemgetter(*self.names), dicts), maxlen=0)
        except KeyError:
            return False
        return True

    def are_in_order(self, records: Collection[Any], kinds: Collection[type]) -> bool:
        """Return whether all records are Rows whose names, if any, are the declared names in the declared order."""
        return kinds == {Row} and set(map(_FIELDS, records)) <= {None, self.names}

    def _lists_of_rows(self, rows: Sequence[Row], given: tuple[str, ...] | None) -> list[Sequence[Any]]:
        """Return the lists of Rows that all have the same names."""
        first = rows[0]
        order = range(len(self.names)) if given is None else self._order(first, given)
        values = list(map(_VALUES, rows))
        if set(map(len, values)) != {len(first)} or len(first) != len(given or self.names):
            for row, items in zip(rows, values, strict=True):
                self._counted(row, items)
        lists = list(zip(*values, strict=True))
        return [[None] * len(rows) if place is None else lists[place] for place in order]

    def _is_class_of_names(self, kind: type) -> bool:
        """Return whether every record of the class has exactly the declared fields as attributes."""
        names = None if issubclass(kind, Mapping | Row) else declared_names_of(kind)
        return names is not None and set(names) == set(self.names)

    def _counted(self, record: Any, values: Sequence[Any]) -> Sequence[Any]:
        if len(values) != len(self.names):
            raise FieldMismatch(record, f"it has {len(values)} fields, {self._declared(len(self.names))}")
        return values

    def _by_names(self, record: Any, given: tuple[str, ...] | None, values: Sequence[Any]) -> Sequence[Any]:
        if given is None or given == self.names:
            return self._counted(record, values)
        order = self._orders.get(given)
        if order is None:
            order = self._order(record, given)
            if len(self._orders) < _MAX_ORDERS:
                self._orders[given] = order
        return [None if place is None else values[place] for place in order]

    def order_of(self, given: tuple[str, ...]) -> list[int | None]:
        """Return the position of each declared field among the names `given`, or None for an optional field that is missing.

        Raises:
            FieldMismatch: the names are not the declared names.
        """
        return self._order(given, given)

    def _order(self, record: Any, given: tuple[str, ...]) -> list[int | None]:
        if self.is_positional and not set(given) & set(self.names):
            self._counted(record, given)
            return list(range(len(given)))
        self._check(record, given)
        places = {name: place for place, name in enumerate(given)}
        return [places.get(name) for name in self.names]

    def _check(self, record: Any, given: Collection[Any], has: Callable[[str], bool] | None = None) -> None:
        has_field = has or given.__contains__
        missing = [name for name in self.names if name not in self.optional and not has_field(name)]
        unknown = [name for name in given if name not in self.names]
        if not missing and not unknown:
            return
        problems = [f"it has no field {', '.join(map(repr, missing))}"] if missing else []
        problems += [f"it has an unknown field {', '.join(map(repr, unknown))}"] if unknown else []
        raise FieldMismatch(record, f"{' and '.join(problems)}, {self._declared()}")

    def _declared(self, count: int | None = None) -> str:
        return f"declared are {'' if count is None else f'{count}: '}{', '.join(self.names)}"

    def _mapping_values(self, record: Mapping[Any, Any]) -> Sequence[Any]:
        names = self.names
        if len(record) == len(names):
            try:
                return [record[name] for name in names]
            except KeyError:
                pass  # the check names the field
        self._check(record, record)
        return [record.get(name) for name in names]

    def _lists_of_dicts(self, records: Sequence[dict[Any, Any]]) -> list[Sequence[Any]]:
        if set(map(len, records)) == {len(self.names)}:
            try:
                return [list(map(itemgetter(name), records)) for name in self.names]
            except KeyError:
                pass  # the check names the field
        for record in records:
            self._check(record, record)
        return [[record.get(name) for record in records] for name in self.names]

    def _check_object(self, record: Any) -> None:
        given = declared_names(record)
        if given is None and not _may_have_fields(record):
            raise FieldMismatch(record, f"a {type(record).__name__} has no fields, {self._declared()}")
        if given != self.names:
            self._check(record, given or (), lambda name: hasattr(record, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return _declared_fields, (self.names, self.optional, self.is_positional)


def _declared_fields(names: Sequence[str], optional: Collection[str], is_positional: bool) -> DeclaredFields:
    return DeclaredFields(names, optional=optional, is_positional=is_positional)


def declared_names(record: Any) -> tuple[str, ...] | None:
    """Return the names of a record's fields in order, by its class; None if the class declares none.

    >>> declared_names((1, 2)), declared_names(Row(a=1))
    (None, ('a',))
    """
    return record._fields if isinstance(record, Row) else declared_names_of(type(record))


def _may_have_fields(record: Any) -> bool:
    """Return whether the attributes of a record are fields. Numbers, texts and times have attributes that are not fields."""
    return hasattr(record, "__dict__") or hasattr(type(record), "__slots__")


def declared_names_of(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields that a class declares, in order; None if it declares none."""
    return _names_of_class(kind)


@lru_cache(maxsize=1024)
def _names_of_class(kind: Hashable) -> tuple[str, ...] | None:
    """Return the fields of a NamedTuple, Struct, pydantic model or dataclass. Fields that the constructor does not take
    are left out."""
    for attribute in ("_fields", "__struct_fields__", "model_fields"):
        names = getattr(kind, attribute, None)
        if names is not None:
            return tuple(names)
    return (
        tuple(field.name for field in dataclasses.fields(kind) if field.init)
        if dataclasses.is_dataclass(kind)
        else None
    )
