"""Base class of the schemas whose messages are rows. It decodes many messages at once, and handles malformed
messages."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.formats.record_format import MalformedBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.typeinfo import RowTypeInfo, TypeInformation
    from penstock.records.batch import Batch

_LOG = logging.getLogger(__name__)


class RowMessages(DeserializationSchema):
    """Deserialization schema that converts messages to Rows.

    Args:
        kind: name of the format, for error messages.
        decode: function from lines to a batch.
        one_by_one: whether each message must pass through `_row`, which checks more than `decode`.
    """

    def __init__(
        self,
        kind: str,
        row_type: RowTypeInfo,
        decode: Callable[[bytes], Batch],
        *,
        ignore_parse_errors: bool,
        one_by_one: bool = False,
    ) -> None:
        self._kind = kind
        self._row_type = row_type
        self._decode = decode
        self._ignore_parse_errors = ignore_parse_errors
        self._one_by_one = one_by_one
        self._ignored = 0

    def deserialize(self, message: bytes) -> Any:
        """Return the Row. Return None if the message has no Row, or if it is malformed and the schema ignores parse errors.

        Raises:
            RecordFormatError: the message is malformed.
        """
        try:
            return self._row(bytes(message))
        except MalformedBlock as error:
            if self._ignore_parse_errors:
                return self._ignore(message, error)
            raise RecordFormatError(
                f"malformed {self._kind} message: {error}: {bytes(message)[:200]!r}",
                remedy="correct the message, or let the schema ignore parse errors",
            ) from error

    @abstractmethod
    def _row(self, message: bytes) -> Any:
        """Decode one message.

        Raises:
            MalformedBlock: the message is malformed.
        """

    def deserialize_batch(self, messages: Sequence[bytes]) -> list[Any]:
        if self._one_by_one:
            return super().deserialize_batch(messages)
        data = b"\n".join(messages)
        try:
            if data.count(b"\n") == len(messages) - 1:
                rows = self._decode(data).rows().values
                if len(rows) == len(messages):
                    return rows
        except MalformedBlock:
            pass  # decode the messages one by one to find the malformed one
        return super().deserialize_batch(messages)

    def _ignore(self, message: bytes, error: Exception) -> None:
        self._ignored += 1
        if self._ignored & (self._ignored - 1) == 0:
            _LOG.warning(
                "ignored %d malformed %s messages so far. The last one: %s: %r",
                self._ignored,
                self._kind,
                error,
                message[:200],
            )

    def get_produced_type(self) -> TypeInformation:
        return self._row_type
