"""Lines of text."""

from __future__ import annotations

import codecs
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, Decode, MalformedBlock, StreamFormat
from penstock.records.batch import RowBatch


class TextLineFormat(StreamFormat):
    r"""Every line as a str, without its line end (`\n` or `\r\n`).

    Args:
        charset_name: a charset in which a line end is the byte 0x0A and nothing else is: UTF-8, ASCII, Latin-1, …

    Raises:
        InvalidJob: no such charset, or lines cannot be told apart in its bytes (UTF-16).

    >>> TextLineFormat().decoder(b"")("one\ntwo\r\nthree".encode()).rows().values
    ['one', 'two', 'three']
    """

    what = "line"

    def __init__(
        self, charset_name: str = "UTF-8", *, on_error: str = "fail", error_tag: Any = MALFORMED_RECORDS
    ) -> None:
        super().__init__(on_error=on_error, error_tag=error_tag)
        try:
            self.charset = codecs.lookup(charset_name).name
        except LookupError:
            raise InvalidJob(
                f"no charset {charset_name!r}", remedy="use one that Python knows, such as UTF-8"
            ) from None
        if "a\n".encode(self.charset) != b"a\n":
            raise InvalidJob(
                f"text lines cannot be read in {charset_name!r}: its line end is not one byte",
                remedy="convert the files to UTF-8",
            )

    def produced_type(self) -> Any:
        return str

    def decoder(self, header: bytes) -> Decode:
        charset = self.charset

        def decode(data: bytes) -> RowBatch:
            try:
                text = data.decode(charset)
            except UnicodeDecodeError as error:
                raise MalformedBlock(f"not {charset}: {error.reason}") from None
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            if "\r" in text:
                lines = [line.removesuffix("\r") for line in lines]
            return RowBatch(lines)

        return decode
