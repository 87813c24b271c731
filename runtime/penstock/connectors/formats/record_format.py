"""What a format is, and what happens to records it cannot read.

Two kinds, as in Flink. A `StreamFormat` has records that are lines: it decodes a block of whole lines at once, so its
position is a byte offset; the simplest gives the lines themselves. A `BulkFormat` has files that only a reader of the whole file understands (Parquet).

A malformed record is never dropped silently. `on_error="fail"` fails the job with a `RecordFormatError` that names the
file, the line and the text. `on_error="side-output"` sends a `RejectedRecord` to the side output `error_tag` and goes on.
A block is decoded as a whole; only one that fails is taken apart to find out which of its records are bad.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from penstock.connectors.source import SplitReader
    from penstock.records.batch import Batch

MALFORMED_RECORDS = "malformed-records"
"""The side output of rejected records, unless the user names another."""
_SHOWN = 200


class RejectedRecord(NamedTuple):
    """A record that could not be read, as it comes out of the side output."""

    path: str
    line: int | None
    """From 1; None where the file is read in ranges."""
    offset: int
    """Of the record's first byte in the (decompressed) file."""
    record: str
    """All of its text, bytes that are no text escaped."""
    reason: str


class MalformedBlock(ValueError):
    """A decoder found something wrong with a block; the text says what."""


class Block(NamedTuple):
    """Whole records, the last one with or without its line end. `line`: of the first one, from 1; None: unknown."""

    offset: int
    line: int | None
    data: bytes


Decode = Callable[[bytes], "Batch"]
"""Decodes a block of whole records. Raises MalformedBlock, and then nothing of the block was taken."""


class RecordFormat(ABC):
    """Common to both kinds. Picklable; made on the client, opened in the task."""

    def __init__(self, *, on_error: str = "fail", error_tag: Any = MALFORMED_RECORDS) -> None:
        if on_error not in ("fail", "side-output"):
            raise InvalidJob(f"on_error={on_error!r}", remedy="write on_error='fail' or on_error='side-output'")
        self.on_error = on_error
        self.error_tag: str = getattr(error_tag, "tag_id", error_tag)

    @property
    @abstractmethod
    def splittable(self) -> bool:
        """Whether a reader may begin in the middle of a file."""

    def produced_type(self) -> Any:
        """Type of the records, None if unknown."""
        return None

    @property
    def rejects(self) -> bool:
        return self.on_error == "side-output"


class StreamFormat(RecordFormat):
    """A format of lines."""

    what = "record"
    """Names a record in messages: "JSON line"."""

    @property
    def splittable(self) -> bool:
        return True

    @property
    def header_lines(self) -> int:
        """Lines at the head of the file that are no records (0 or 1)."""
        return 0

    @abstractmethod
    def decoder(self, header: bytes) -> Decode:
        """The function that decodes blocks of a file with this header line.

        Args:
            header: empty if `header_lines` is 0, and for a file in which nothing stands.

        Raises:
            RecordFormatError: the header does not fit; the reader adds the file's name.
        """

    def last_record_end(self, data: bytes) -> int:
        """Length of the part of `data`, which begins with a record, that holds whole records; 0 if none is whole."""
        return data.rfind(b"\n") + 1

    def records(self, data: bytes) -> list[bytes]:
        """The single records of a block, each with its line end."""
        *lines, rest = data.split(b"\n")
        found = [line + b"\n" for line in lines]
        if rest:
            found.append(rest)
        return found

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Lines of text as str (PyFlink's name)."""
        return TextLineFormat(charset_name)


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


class BulkFormat(RecordFormat):
    """A format whose files are opened as a whole."""

    @abstractmethod
    def open(self, path: str, file: Any, start: int, end: int, position: Any) -> SplitReader:
        """A reader of the records of a file (a seekable binary file object) that begin between bytes `start` and `end`."""


def isolate(format: StreamFormat, decode: Decode, block: Block, path: str) -> tuple[Batch | None, list[RejectedRecord]]:
    """Decodes the good records of a block that does not decode as a whole, and tells which are bad.

    Halves the block again and again: for k bad records among n it decodes about k·log2(n) pieces.

    Raises:
        RecordFormatError: the format's `on_error` is "fail"; for the first bad record.
    """
    records = format.records(block.data)
    bad = _find_bad(decode, records, 0, len(records))
    rejected = []
    bad_indexes = set()
    offset, line, index = block.offset, block.line, 0
    for position, reason in bad:
        while index < position:
            offset += len(records[index])
            line = None if line is None else line + records[index].count(b"\n")
            index += 1
        bad_indexes.add(position)
        text = records[position].rstrip(b"\r\n").decode("utf-8", "backslashreplace")
        if not format.rejects:
            raise malformed(format.what, path, line, offset, text, reason)
        rejected.append(RejectedRecord(path, line, offset, text, reason))
    good = b"".join(record for n, record in enumerate(records) if n not in bad_indexes)
    try:
        return (decode(good) if good else None), rejected
    except MalformedBlock as error:
        text = good.decode("utf-8", "backslashreplace")
        raise malformed(f"block of {format.what}s", path, block.line, block.offset, text, str(error)) from error


def _find_bad(decode: Decode, records: list[bytes], start: int, end: int) -> Iterator[tuple[int, str]]:
    try:
        decode(b"".join(records[start:end]))
    except MalformedBlock as error:
        if end - start == 1:
            yield start, str(error)
            return
        middle = (start + end) // 2
        yield from _find_bad(decode, records, start, middle)
        yield from _find_bad(decode, records, middle, end)


def malformed(what: str, path: str, line: int | None, offset: int, text: str, reason: str) -> RecordFormatError:
    """The error for a record that cannot be read, with its text shortened."""
    where = f"byte {offset}" if line is None else f"line {line}, byte {offset}"
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
    return RecordFormatError(
        f"malformed {what} in {path!r}, {where}: {reason}: {shown!r}",
        remedy="correct the record, or let the format send such records to a side output: on_error='side-output'",
    )
