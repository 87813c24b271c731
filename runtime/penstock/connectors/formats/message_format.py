"""Formats of messages: they decode many messages into one batch, which can become columns like the lines of files.

The batch contains the decoded objects. The batch makes columns of these objects only if an operator asks for columns (`object_batch`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.object_batch import ObjectBatch, ObjectColumns
from penstock.connectors.formats.record_format import MalformedBlock, StreamFormat, TextLineFormat
from penstock.records.batch import Batch, RowBatch

if TYPE_CHECKING:
    from penstock.connectors.formats.shape import RecordShape

DecodeMessages = Callable[[Sequence[bytes]], Batch]
"""Function that returns a record for each message. If a message is malformed, the function raises the decoder's error and returns no records."""


class MessageFormat(DeserializationSchema):
    """A schema of messages that decodes many messages at once. Its batches can become columns if its records have columns."""

    @abstractmethod
    def batch_decoder(self) -> DecodeMessages: ...


class RecordBatches:
    """A maker of batches from decoded objects.

    Args:
        shape: the shape of the records; None means that they have no columns.
        to_rows: makes a record of a decoded object; None means that the decoded objects are the records.
        getters: functions that read the fields of a decoded object; dicts need none.
        size: returns the bytes of a decoded object. Required only if Python cannot measure the object.
    """

    def __init__(
        self,
        shape: RecordShape | None,
        to_rows: Callable[[Any], Any] | None,
        getters: list[Callable[[Any], Any]] | None = None,
        size: Callable[[Any], int] | None = None,
    ) -> None:
        self._to_rows = (lambda objects: objects) if to_rows is None else lambda objects: list(map(to_rows, objects))
        self._kind: ObjectColumns | None = None
        if shape is not None and shape.has_columns:
            self._kind = ObjectColumns(shape, getters or _by_name(shape.names), self._to_rows, size)

    def batch(self, objects: list[Any]) -> Batch:
        return self.rows(objects) if self._kind is None else ObjectBatch(objects, self._kind)

    def rows(self, objects: list[Any]) -> RowBatch:
        """Return the records as rows, even if the shape has columns."""
        return RowBatch(self._to_rows(objects))


def _by_name(names: Sequence[str]) -> list[Callable[[Any], Any]]:
    return [itemgetter(name) for name in names]


def of_lines(format: StreamFormat) -> DecodeMessages:
    """Return a decoder of messages that are single lines without line ends.

    A text message may contain line ends. A JSON message may have several lines.

    Raises:
        InvalidJob: the format has a header.
    """
    if format.header_lines:
        raise InvalidJob("messages have no header line", remedy="turn the format's header off")
    if type(format) is TextLineFormat:
        return _of_text(format.charset)
    decode_lines = format.decoder(b"")
    is_json = isinstance(format, JsonLinesFormat)

    def decode(values: Sequence[bytes]) -> Batch:
        data = b"\n".join(values)
        if len(values) == 1:
            if is_json:  # a line end can only be between tokens, because JSON strings contain none
                data = data.replace(b"\n", b" ")
        elif data.count(b"\n") != len(values) - 1:
            raise MalformedBlock("values of several lines are decoded one by one")
        batch = decode_lines(data)
        if len(batch) != len(values):
            raise MalformedBlock("the number of records differs from the number of messages")
        return batch

    return decode


def _of_text(charset: str) -> DecodeMessages:
    def decode(values: Sequence[bytes]) -> Batch:
        try:
            return RowBatch([str(value, charset) for value in values])
        except UnicodeDecodeError as error:
            raise MalformedBlock(f"not {charset}: {error.reason}") from None

    return decode
