"""Messages that become columns, as lines of files do: a format of messages decodes many of them into one batch.

The batch has the decoded objects and makes columns of them only where an operator asks for columns (`object_batch`).
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
"""A record for each message. Raises whatever a bad one makes the decoder raise, and then nothing was taken."""


class MessageFormat(DeserializationSchema):
    """A schema of messages that has a faster way for many, and columns where its records have such."""

    @abstractmethod
    def batch_decoder(self) -> DecodeMessages: ...


class RecordBatches:
    """Makes batches of decoded records.

    Args:
        shape: of the records; None: they have no columns.
        to_rows: makes the records of what was decoded; None: that is them.
        getters: of the fields of what was decoded; dicts need none.
        size: bytes of what was decoded, where Python cannot tell.
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
        """Whatever columns there are."""
        return RowBatch(self._to_rows(objects))


def _by_name(names: Sequence[str]) -> list[Callable[[Any], Any]]:
    return [itemgetter(name) for name in names]


def of_lines(format: StreamFormat) -> DecodeMessages:
    """Messages that are lines each, without their ends. A text is a text, whatever stands in it; of others, JSON may stand on several lines.

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
            if is_json:  # between its parts, for within them it has no line ends
                data = data.replace(b"\n", b" ")
        elif data.count(b"\n") != len(values) - 1:
            raise MalformedBlock("values of several lines are decoded one by one")
        batch = decode_lines(data)
        if len(batch) != len(values):
            raise MalformedBlock("not one record for a message")
        return batch

    return decode


def _of_text(charset: str) -> DecodeMessages:
    def decode(values: Sequence[bytes]) -> Batch:
        try:
            return RowBatch([str(value, charset) for value in values])
        except UnicodeDecodeError as error:
            raise MalformedBlock(f"not {charset}: {error.reason}") from None

    return decode
