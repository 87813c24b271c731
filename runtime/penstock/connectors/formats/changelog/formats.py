"""`DebeziumJsonFormat`, `CanalJsonFormat`, `MaxwellJsonFormat`: lines of files, and values of messages.

A line or message may give no row, one, or several: an update is two in mode "all", a snapshot's mark is none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import RowTypeInfo
from penstock.common.types import Row, RowKind
from penstock.connectors.formats.changelog.images import TIME_UNITS, UNAVAILABLE, RowImages, row_shapes, with_floats
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, Decode, MalformedBlock, StreamFormat
from penstock.connectors.formats.shape import Declaration
from penstock.records.batch import RowBatch

_INSERT, _DELETE = RowKind.INSERT, RowKind.DELETE
_BEFORE, _AFTER = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER


class ChangelogFormat(StreamFormat):
    """Common to all.

    Args:
        fields: of the table (see `formats.shape`); records are Rows.
        tables: only changes of these, "table" or "database.table"; of all unless given.
        mode: "all", an update is the row before and the row after it, or "upsert", the row after it.
        metadata: more fields of the records, by the path of what they are in the message: {"changed_at": "source.ts_ms"}.
        time_unit: of times that are numbers, "ms" or "us".
        on_error: "fail" or "side-output" (to `error_tag`).
    """

    what = "change"
    is_lax = False

    def __init__(
        self,
        fields: Declaration,
        *,
        tables: Sequence[str] = (),
        mode: str = "all",
        metadata: Mapping[str, str] | None = None,
        time_unit: str = "",
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
    ) -> None:
        super().__init__(on_error=on_error, error_tag=error_tag)
        if mode not in ("all", "upsert"):
            raise InvalidJob(f"mode={mode!r}", remedy="write 'all' or 'upsert'")
        if time_unit and time_unit not in TIME_UNITS:
            raise InvalidJob(f"time_unit={time_unit!r}", remedy="write 'ms' or 'us'")
        self.tables = frozenset(tables)
        self.mode = mode
        self.metadata = dict(metadata or {})
        self.time_unit = time_unit
        self.shape, self.row_shape = row_shapes(fields, self.metadata)
        self._images()

    def _images(self) -> _Images:
        images = RowImages(self.shape, self.row_shape.names, lax=self.is_lax, time_unit=self.time_unit)
        return _Images(images, self.mode == "all")

    def produced_type(self) -> Any:
        found = self.row_shape.produced_type()
        return found if isinstance(found, RowTypeInfo) else None

    def decoder(self, header: bytes) -> Decode:
        decode = self.message_decoder()

        def of_lines(data: bytes) -> RowBatch:
            return RowBatch([row for line in data.split(b"\n") if line.strip() for row in decode(line)])

        return of_lines

    def message_decoder(self) -> Any:
        """A function from a message's bytes, or None, to its Rows. It raises MalformedBlock."""
        images, paths = self._images(), [path.split(".") for path in self.metadata.values()]
        parse = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal if images.has_decimals else None).decode

        def decode(value: bytes | None) -> list[Row]:
            if value is None:
                return []
            try:
                message = self.envelope(parse(value))
            except (msgspec.MsgspecError, RecursionError) as error:
                raise MalformedBlock(str(error)) from None
            if message is None or (self.tables and not self.tables & set(self.names_of(message))):
                return []
            images.extra = tuple(with_floats(_at(message, path)) for path in paths)
            return list(self.rows(message, images))

        return decode

    def envelope(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """What of a message tells the change; None: nothing."""
        return message

    def names_of(self, message: dict[str, Any]) -> tuple[str, ...]:
        """Of the table."""
        table, database = str(message.get("table")), message.get("database")
        return table, f"{database}.{table}"

    @abstractmethod
    def rows(self, message: dict[str, Any], images: _Images) -> Iterator[Row]: ...


class _Images:
    """What a message's rows are made with. `extra`: its metadata."""

    def __init__(self, images: RowImages, both: bool) -> None:
        self._images = images
        self.has_decimals = images.has_decimals
        self._both = both
        self.extra: tuple[Any, ...] = ()

    def insert(self, image: Any) -> Row:
        return self._images.row(_object(image, "the new row"), _INSERT, self.extra)

    def delete(self, image: Any) -> Row:
        return self._images.row(_object(image, "the deleted row"), _DELETE, self.extra, whole=False)

    def update(self, before: Any, after: Any, missing: str) -> Iterator[Row]:
        if self._both:
            if not isinstance(before, dict):
                raise MalformedBlock(missing)
            yield self._images.row(before, _BEFORE, self.extra, whole=False)
        yield self._images.row(_object(after, "the updated row"), _AFTER, self.extra)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedBlock(f"{what} is {value!r}, not an object")
    return value


def _at(message: Any, path: list[str]) -> Any:
    for name in path:
        message = message.get(name) if isinstance(message, dict) else None
    return message


class DebeziumJsonFormat(ChangelogFormat):
    r"""Debezium's change events, with or without the schema in each.

    >>> decode = DebeziumJsonFormat({"id": int, "name": str}).decoder(b"")
    >>> [str(row.get_row_kind()) for row in decode(b'{"op":"u","before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"}}\n').rows().values]
    ['-U', '+U']
    """

    what = "Debezium event"

    def envelope(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if "payload" in message and "op" not in message:
            payload = message["payload"]
            return None if payload is None else _object(payload, "the payload")
        return message

    def names_of(self, message: dict[str, Any]) -> tuple[str, ...]:
        source = message.get("source") or {}
        table = str(source.get("table"))
        return table, f"{source.get('schema')}.{table}", f"{source.get('db')}.{table}"

    def rows(self, message: dict[str, Any], images: _Images) -> Iterator[Row]:
        operation, before, after = message.get("op"), message.get("before"), message.get("after")
        for image in (before, after):
            if isinstance(image, dict) and UNAVAILABLE in image.values():
                names = [name for name in self.shape.names if image.get(name) == UNAVAILABLE]
                if names:
                    raise MalformedBlock(
                        f"{', '.join(names)} was not in the database's log (a large value that the update did not touch): "
                        "alter table … replica identity full"
                    )
        if operation in ("c", "r"):
            yield images.insert(after)
        elif operation == "u":
            yield from images.update(
                before,
                after,
                "an update without the row before it: alter table … replica identity full, or mode='upsert'",
            )
        elif operation == "d":
            yield images.delete(before)
        elif operation != "m":
            raise MalformedBlock(f"op is {operation!r}, not one of c, r, u, d, m")


class CanalJsonFormat(ChangelogFormat):
    """Canal's flat messages, whose values are strings; a message may have several rows. Changes of the schema are left out.

    >>> decode = CanalJsonFormat({"id": int, "name": str}).decoder(b"")
    >>> decode(b'{"type":"INSERT","data":[{"id":"1","name":"a"},{"id":"2","name":"b"}],"old":null}').rows().values
    [Row(id=1, name='a'), Row(id=2, name='b')]
    """

    what = "Canal message"
    is_lax = True

    def rows(self, message: dict[str, Any], images: _Images) -> Iterator[Row]:
        operation, rows = message.get("type"), message.get("data")
        is_ddl = message.get("isDdl") and operation != "TRUNCATE"  # Canal's DDL, but it takes the rows away
        if is_ddl or operation in ("CREATE", "ALTER", "QUERY", "ERASE", "RENAME", "CINDEX", "DINDEX"):
            return
        if operation not in ("INSERT", "UPDATE", "DELETE"):
            raise MalformedBlock(f"type is {operation!r}, not one of INSERT, UPDATE, DELETE")
        if not isinstance(rows, list):
            raise MalformedBlock(f"data is {rows!r}, not a list of rows")
        olds = message.get("old") or [None] * len(rows)
        if operation == "UPDATE" and len(olds) != len(rows):
            raise MalformedBlock(f"{len(rows)} rows and {len(olds)} of before")
        for number, row in enumerate(rows):
            if operation == "INSERT":
                yield images.insert(row)
            elif operation == "DELETE":
                yield images.delete(row)
            else:
                yield from images.update(_overlaid(row, olds[number]), row, "an update without what it has changed")


class MaxwellJsonFormat(ChangelogFormat):
    """Maxwell's messages, those of a bootstrap included.

    >>> decode = MaxwellJsonFormat({"id": int, "name": str}).decoder(b"")
    >>> decode(b'{"type":"update","data":{"id":1,"name":"b"},"old":{"name":"a"}}').rows().values
    [Row(id=1, name='a'), Row(id=1, name='b')]
    """

    what = "Maxwell message"

    def rows(self, message: dict[str, Any], images: _Images) -> Iterator[Row]:
        operation, row = message.get("type"), message.get("data")
        if operation in ("insert", "bootstrap-insert"):
            yield images.insert(row)
        elif operation == "delete":
            yield images.delete(row)
        elif operation == "update":
            yield from images.update(_overlaid(row, message.get("old")), row, "an update without what it has changed")
        elif not str(operation).startswith(("bootstrap-", "table-", "database-")):
            raise MalformedBlock(f"type is {operation!r}, not one of insert, update, delete")


def _overlaid(row: Any, old: Any) -> Any:
    """The row before an update: what has changed says only that."""
    return {**row, **old} if isinstance(row, dict) and isinstance(old, dict) else None
