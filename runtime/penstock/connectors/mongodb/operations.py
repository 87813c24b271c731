"""The writes of a record. Each write is a document or pymongo's `ReplaceOne`, `UpdateOne` or `DeleteOne`, and changes one document."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.common.errors import SinkError
from penstock.connectors.mongodb.client import package
from penstock.connectors.mongodb.documents import as_mapping, encoded, storable

LARGEST = 16 << 20
"""Maximum size of a document in bytes, in every version of MongoDB."""
_TWICE = ("$set", "$unset", "$setOnInsert", "$min", "$max", "$addToSet", "$pull", "$pullAll", "$currentDate", "$rename")
"""Idempotent operators: a second execution changes nothing."""


@dataclass(slots=True)
class Write:
    """One write of a bulk."""

    request: Any
    """The request object of pymongo."""
    key: bytes
    """The key of the document that the write changes."""
    named: dict[str, Any]
    """The fields that identify the document."""
    size: int
    replaces: bool
    """Whether the write overwrites all earlier writes of this document."""
    upserts: bool

    @property
    def shown(self) -> str:
        return f"{{{_shown(self.named)}}}"

    def send_to(self, collection: Any) -> None:
        """Send the write as a single request."""
        pymongo, request = package(), self.request
        if isinstance(request, pymongo.DeleteOne):
            collection.delete_one(request._filter, collation=request._collation, hint=request._hint)
            return
        about = {"upsert": request._upsert, "collation": request._collation, "hint": request._hint}
        if isinstance(request, pymongo.ReplaceOne):
            collection.replace_one(request._filter, request._doc, **about)
        else:
            collection.update_one(request._filter, request._doc, array_filters=request._array_filters, **about)


class Writes:
    """The conversion of records to writes.

    Args:
        operation: a function from a record to a document, one of pymongo's writes, a list of these, or None. Without a function, records
            are documents.
        key: the fields that identify a document. The default is `_id`.
    """

    def __init__(self, operation: Callable[[Any], Any] | None, key: Sequence[str]) -> None:
        self._operation = operation
        self._key = tuple(key) or ("_id",)
        pymongo = package()
        self._kinds = (pymongo.ReplaceOne, pymongo.UpdateOne, pymongo.DeleteOne)
        self._raw = package("bson.raw_bson").RawBSONDocument

    def of(self, record: Any) -> list[Write]:
        """Return the writes of a record.

        Raises:
            SinkError: the function returned an unsupported type, a value without a BSON representation, or a write that is not idempotent.
        """
        found = record if self._operation is None else self._operation(record)
        if found is None:
            return []
        return [self._write(one, record) for one in (found if isinstance(found, list) else [found])]

    def _write(self, request: Any, record: Any) -> Write:
        try:
            if isinstance(request, self._kinds):
                return self._of_request(request)
            if type(request).__module__.startswith("pymongo."):
                raise ValueError(f"{type(request).__name__} does not identify a single document, or is not idempotent")
            fields = as_mapping(request)
            if fields is None:
                raise ValueError(f"a {type(request).__name__} is not a document")
            return self._of_document(fields)
        except ValueError as error:
            raise SinkError(
                f"{error}; the request is {str(request)[:300]}, created from the record {str(record)[:200]}",
                remedy=f"return one of these: a document with {' and '.join(self._key)}; ReplaceOne, UpdateOne or DeleteOne of pymongo; "
                "a list of them; None. Keep sums in the job's state",
            ) from error

    def _of_document(self, fields: Mapping[str, Any]) -> Write:
        missing = [name for name in self._key if fields.get(name) is None]
        if missing:
            raise ValueError(f"the document has no {', '.join(missing)}")
        named = {name: storable(fields[name], name) for name in self._key}
        raw = encoded(fields)
        request = package().ReplaceOne(named, self._raw(raw), upsert=True)
        return self._write_of(request, named, len(raw), replaces=True, upserts=True)

    def _of_request(self, original: Any) -> Write:
        request = copy.copy(original)
        names = storable(original._filter, "the filter")
        if not isinstance(names, dict):
            raise ValueError(f"{original._filter!r} is not a filter")
        named = {name: names[name] for name in self._key if name in names and not _is_condition(names[name])}
        if len(named) < len(self._key):
            raise ValueError(f"the filter {names!r} does not identify one document by {', '.join(self._key)}")
        request._filter = names
        is_plain, upserts = len(names) == len(named), bool(getattr(original, "_upsert", False))
        if upserts and not is_plain:
            raise ValueError(
                f"upsert=True and a condition on other fields than {', '.join(self._key)} could create the document a second time"
            )
        if isinstance(original, package().DeleteOne):
            return self._write_of(request, named, 0, replaces=is_plain, upserts=False)
        is_replacement = isinstance(original, package().ReplaceOne)
        if not is_replacement:
            _check_update(original._doc)
        raw = encoded(original._doc)
        request._doc = self._raw(raw)
        return self._write_of(request, named, len(raw), replaces=is_replacement and upserts, upserts=upserts)

    def _write_of(self, request: Any, named: dict[str, Any], size: int, *, replaces: bool, upserts: bool) -> Write:
        if size > LARGEST:
            raise ValueError(f"the document {{{_shown(named)}}} has {size:,} bytes, more than MongoDB's limit of 16 MB")
        key = encoded({name: _same(value) for name, value in named.items()})
        return Write(request, key, named, size + 2 * len(key) + 50, replaces, upserts)


def _shown(named: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value!r}" for name, value in named.items())[:200]


def _is_condition(value: Any) -> bool:
    return isinstance(value, dict) and any(name.startswith("$") for name in value)


def _same(value: Any) -> Any:
    """Return a value in which equal numbers have the same form, also within documents. In MongoDB, equal numbers are the same `_id`."""
    if isinstance(value, dict):
        return {name: _same(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_same, value))
    if type(value).__name__ == "Decimal128":
        return _same_decimal(value.to_decimal())
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def _same_decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return float(value)
    if abs(value) < 2**63 and value == int(value):
        return int(value)
    if value == float(value):
        return float(value)
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    short = text.rstrip("0")
    whole = Decimal(f"{'-' * sign}{short}E{int(exponent) + len(text) - len(short)}")
    return package("bson").Decimal128(whole)


def _check_update(update: Any) -> None:
    if not isinstance(update, Mapping):
        raise ValueError("an update by a pipeline is not idempotent: a restart could count values twice")
    if not all(str(name).startswith("$") for name in update) or not update:
        raise ValueError(f"the update {str(update)[:100]} has no operators")
    strange = [str(name) for name in update if name not in _TWICE]
    if strange:
        raise ValueError(
            f"{', '.join(strange)} are not idempotent: a restart would count values twice. Use {', '.join(_TWICE)}"
        )
