"""Sources whose messages a schema decodes, and the readers of their splits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.connectors.core.source import Source, SplitReader
from penstock.connectors.formats.record_format import StreamFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.messages.decoder import MessageDecoder
    from penstock.records.batch import Batch


class MessageSource(Source):
    """A source of messages.

    Args:
        schema: the decoder of the messages' values: a `DeserializationSchema`, or a format of lines. None means that records are whole messages.
        error_tag: the id of the side output for malformed messages. None means that a malformed message fails the job.
    """

    bounded = False

    def __init__(self, schema: Any, error_tag: str | None) -> None:
        self.schema = schema
        self._error_tag = error_tag

    @property
    def rejects(self) -> bool:
        """Return whether malformed messages go to the side output."""
        return self._error_tag is not None

    def produced_type(self) -> Any:
        if isinstance(self.schema, StreamFormat):
            return self.schema.produced_type()
        return None if self.schema is None else self.schema.get_produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return () if self._error_tag is None else (self._error_tag,)


class MessageReader(SplitReader):
    """A reader of a split whose messages `decoder` converts."""

    def __init__(self, decoder: MessageDecoder) -> None:
        self._decoder = decoder
        self._rejected: list[Any] = []

    def _decode(self, messages: Sequence[Any]) -> Batch | None:
        batch, rejected = self._decoder.decode(messages)
        self._rejected += rejected
        return batch

    def take_rejected(self) -> list[Any]:
        rejected, self._rejected = self._rejected, []
        return rejected


def error_tag_of(on_error: str, error_tag: Any) -> str | None:
    """Return the id of the side output for malformed messages, or None if they fail the job.

    Raises:
        InvalidJob: `on_error` is neither "fail" nor "side-output".
    """
    check_choice("on_error", on_error, "fail", "side-output")
    return getattr(error_tag, "tag_id", error_tag) if on_error == "side-output" else None


def check_choice(name: str, value: str, first: str, second: str) -> None:
    """Check that a setting has one of its two values.

    Raises:
        InvalidJob: the setting has another value.
    """
    if value not in (first, second):
        raise InvalidJob(f"{name}={value!r} is not valid", remedy=f"write {first!r} or {second!r}")
