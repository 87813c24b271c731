"""`DebeziumJsonFormat`, `CanalJsonFormat` and `MaxwellJsonFormat`, for lines of files and values of messages.

A line or message can produce no row, one row or several. In mode "all", an update produces two rows. A marker of
a snapshot produces no row.
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
from penstock.connectors.formats.changelog.decimals import DecimalTexts
from penstock.connectors.formats.changelog.images import TIME_UNITS, UNAVAILABLE, RowImages, row_shapes, with_floats
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, Decode, MalformedBlock, StreamFormat
from penstock.connectors.formats.shape import Declaration
from penstock.records.batch import RowBatch

_INSERT, _DELETE = RowKind.INSERT, RowKind.DELETE
_BEFORE, _AFTER = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER


class ChangelogFormat(StreamFormat):
    """The base class of the changelog formats.

    Args:
        fields: the fields of the table (see `formats.shape`). Records are Rows.
        tables: the tables whose changes are read, "table" or "database.table"; all by default.
        mode: with "all", an update becomes the row before the update and the row after it. "upsert" means only the row after it.
        metadata: additional fields of the records, each with its path in the message: {"changed_at": "source.ts_ms"}.
        time_unit: unit of times that are numbers, "ms" or "us".
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
            raise InvalidJob(f"mode={mode!r} is not a valid choice", remedy="write 'all' or 'upsert'")
        if time_unit and time_unit not in TIME_UNITS:
            raise InvalidJob(f"time_unit={time_unit!r} is not a valid choice", remedy="write 'ms' or 'us'")
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
        """Return a function from a message's bytes (or None) to the message's Rows. The function raises MalformedBlock."""
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
        """Return the part of a message that describes the change, or None if there is no change."""
        return message

    def names_of(self, message: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the table, alone and with its database or schema."""
        table, database = str(message.get("table")), message.get("database")
        return table, f"{database}.{table}"

    @abstractmethod
    def rows(self, message: dict[str, Any], images: _Images) -> Iterator[Row]: ...


class _Images:
    """The builder of a message's rows. `extra` has the message's metadata."""

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


def _object(value: Any, description: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedBlock(f"{description} is {value!r}, not an object")
    return value


def _at(message: Any, path: list[str]) -> Any:
    for name in path:
        message = message.get(name) if isinstance(message, dict) else None
    return message


class DebeziumJsonFormat(ChangelogFormat):
    r"""A format of Debezium's change events, with or without an embedded schema.

    Args:
        decimal_handling_mode: the connector's setting of this name: "string", "double", or "precise", which needs fields of
            `DataTypes.DECIMAL(precision, scale)`. If unset, texts that could also be base64 are malformed.

    >>> decode = DebeziumJsonFormat({"id": int, "name": str}).decoder(b"")
    >>> [str(row.get_row_kind()) for row in decode(b'{"op":"u","before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"}}\n').rows().values]
    ['-U', '+U']
    """

    what = "Debezium event"

    def __init__(self, fields: Declaration, *, decimal_handling_mode: str = "", **options: Any) -> None:
        super().__init__(fields, **options)
        self._decimals = DecimalTexts(self.shape, decimal_handling_mode)

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
        before, after = self._decimals.plain(before), self._decimals.plain(after)
        for image in (before, after):
            if isinstance(image, dict) and UNAVAILABLE in image.values():
                names = [name for name in self.shape.names if image.get(name) == UNAVAILABLE]
                if names:
                    raise MalformedBlock(
                        f"the database's log omits {', '.join(names)} (a large value that the update did not touch): "
                        "alter table … replica identity full"
                    )
        if operation in ("c", "r"):
            yield images.insert(after)
        elif operation == "u":
            yield from images.update(
                before,
                after,
                "the update does not have the row before it: alter table … replica identity full, or use mode='upsert'",
            )
        elif operation == "d":
            yield images.delete(before)
        elif operation != "m":
            raise MalformedBlock(f"op is {operation!r}, not one of c, r, u, d, m")


class CanalJsonFormat(ChangelogFormat):
    """A format of Canal's flat messages, whose values are strings. A message may have several rows. Schema changes are skipped.

    >>> decode = CanalJsonFormat({"id": int, "name": str}).decoder(b"")
    >>> decode(b'{"type":"INSERT","data":[{"id":"1","name":"a"},{"id":"2","name":"b"}],"old":null}').rows().values
    [Row(id=1, name='a'), Row(id=2, name='b')]
    """

    what = "Canal message"
    is_lax = True

    def rows(self, message: dict[str, Any], images: _Images) -> Iterator[Row]:
        operation, rows = message.get("type"), message.get("data")
        is_ddl = message.get("isDdl") and operation != "TRUNCATE"  # Canal reports TRUNCATE as DDL, but it deletes rows
        if is_ddl or operation in ("CREATE", "ALTER", "QUERY", "ERASE", "RENAME", "CINDEX", "DINDEX"):
            return
        if operation not in ("INSERT", "UPDATE", "DELETE"):
            raise MalformedBlock(f"type is {operation!r}, not one of INSERT, UPDATE, DELETE")
        if not isinstance(rows, list):
            raise MalformedBlock(f"data is {rows!r}, not a list of rows")
        olds = message.get("old") or [None] * len(rows)
        if operation == "UPDATE" and len(olds) != len(rows):
            raise MalformedBlock(f"the update has {len(rows)} new rows but {len(olds)} old rows")
        for number, row in enumerate(rows):
            if operation == "INSERT":
                yield images.insert(row)
            elif operation == "DELETE":
                yield images.delete(row)
            else:
                yield from images.update(_overlaid(row, olds[number]), row, "the update does not have the old values")


class MaxwellJsonFormat(ChangelogFormat):
    """A format of Maxwell's messages, including those of a bootstrap.

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
            yield from images.update(_overlaid(row, message.get("old")), row, "the update does not have the old values")
        elif not str(operation).startswith(("bootstrap-", "table-", "database-")):
            raise MalformedBlock(f"type is {operation!r}, not one of insert, update, delete")


def _overlaid(row: Any, old: Any) -> Any:
    """Return the row before an update. `old` has only the changed fields."""
    return {**row, **old} if isinstance(row, dict) and isinstance(old, dict) else None
