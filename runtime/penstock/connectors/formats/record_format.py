"""The interfaces of formats, and the handling of records that a format cannot read.

Formats are of two kinds, as in Flink. The records of a `StreamFormat` are lines. The format decodes a block of whole lines at
once, so a position is a byte offset. The simplest `StreamFormat` returns the lines themselves. A `BulkFormat`, such as Parquet, needs a
reader that understands the whole file.

A malformed record is never dropped silently. `on_error="fail"` fails the job with a `RecordFormatError` that names the file,
the line and the text. `on_error="side-output"` sends a `RejectedRecord` to the side output `error_tag`, and the job continues.
A block is decoded as a whole. If this fails, the reader divides the block to find its malformed records.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.records.batch import RowBatch

if TYPE_CHECKING:
    from penstock.connectors.core.source import SplitReader
    from penstock.records.batch import Batch

MALFORMED_RECORDS = "malformed-records"
"""Default side output of rejected records."""
_SHOWN = 200


class RejectedRecord(NamedTuple):
    """A record that could not be read, as it comes out of the side output."""

    path: str
    line: int | None
    """Line number from 1; None if the file is read in ranges."""
    offset: int
    """Offset of the record's first byte in the (decompressed) file."""
    record: str
    """Complete text of the record. Bytes that are not text are escaped."""
    reason: str


class MalformedBlock(ValueError):
    """An error of a decoder about a block. The text is the reason."""


class Block(NamedTuple):
    """Whole records. The last record may lack its line end. `line` is the line number of the first record, from 1, or
    None."""

    offset: int
    line: int | None
    data: bytes


Decode = Callable[[bytes], "Batch"]
"""Function that decodes a block of whole records. If the function raises MalformedBlock, it returns no record of the block."""


class SuspiciousDecoder(ABC):
    """A `Decode` that can report at little cost which records of a block may have caused its failure."""

    @abstractmethod
    def __call__(self, data: bytes) -> Batch: ...

    @abstractmethod
    def suspects(self, records: list[bytes]) -> dict[int, str | None]:
        """Return records that may be malformed, by their index, with the reason.

        If a record has no reason, only decoding it alone shows whether it is malformed. Other records may be malformed, too.
        """


class RecordFormat(ABC):
    """The base class of both kinds of formats. A format is picklable; the client makes it, and the task opens it."""

    def __init__(self, *, on_error: str = "fail", error_tag: Any = MALFORMED_RECORDS) -> None:
        if on_error not in ("fail", "side-output"):
            raise InvalidJob(
                f"on_error={on_error!r} is not a valid choice", remedy="write on_error='fail' or on_error='side-output'"
            )
        self.on_error = on_error
        self.error_tag: str = getattr(error_tag, "tag_id", error_tag)

    @property
    @abstractmethod
    def splittable(self) -> bool:
        """Return True if a reader may begin in the middle of a file."""

    def produced_type(self) -> Any:
        """Return the type of the records, or None if unknown."""
        return None

    @property
    def rejects(self) -> bool:
        return self.on_error == "side-output"


class StreamFormat(RecordFormat):
    """A format whose records are lines."""

    what = "record"
    """Name of a record in error messages: "JSON line"."""

    @property
    def splittable(self) -> bool:
        return True

    @property
    def header_lines(self) -> int:
        """Return the number of lines at the head of the file that are not records (0 or 1)."""
        return 0

    @abstractmethod
    def decoder(self, header: bytes, /) -> Decode:
        """Return the function that decodes blocks of a file with this header line.

        Args:
            header: the header line; empty if `header_lines` is 0, and for an empty file.

        Raises:
            RecordFormatError: the header does not match the format. The reader adds the file's name.
        """

    def last_record_end(self, data: bytes, /, *, is_last: bool = False) -> int:
        """Return the length of the whole records at the start of `data`; 0 if no record is whole. `data` begins with a
        record.

        Args:
            is_last: `data` ends the file, so its last record needs no line end.
        """
        return len(data) if is_last else data.rfind(b"\n") + 1

    def records(self, data: bytes, /) -> list[bytes]:
        """Return the single records of a block, each with its line end."""
        *lines, rest = data.split(b"\n")
        found = [line + b"\n" for line in lines]
        if rest:
            found.append(rest)
        return found

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Return a format of text lines as str (PyFlink's name)."""
        return TextLineFormat(charset_name)


class TextLineFormat(StreamFormat):
    r"""A format that reads every line as a str, without its line end (`\n` or `\r\n`).

    Args:
        charset_name: a charset in which the byte 0x0A is always a line end: UTF-8, ASCII, Latin-1, …

    Raises:
        InvalidJob: the charset does not exist, or its line end is not the single byte 0x0A (UTF-16).

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
                f"the charset {charset_name!r} does not exist", remedy="use one that Python knows, such as UTF-8"
            ) from None
        if self.charset == "utf-8-sig":  # the reader of files skips a byte order mark anyway
            self.charset = "utf-8"
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
    def open(self, path: str, file: Any, start: int, end: int, position: Any, /) -> SplitReader:
        """Return a reader of the file's records that begin between bytes `start` and `end`. `file` is seekable and binary."""


def isolate(format: StreamFormat, decode: Decode, block: Block, path: str) -> tuple[Batch | None, list[RejectedRecord]]:
    """Decode the good records of a block that does not decode as a whole. Return them and the rejected records.

    The search first tries the records that the decoder suspects. If the other records do not decode either, the search halves them
    repeatedly. For k bad records among n, it then decodes about k·log2(n) pieces.

    Raises:
        RecordFormatError: the format's `on_error` is "fail". The error names the first bad record.
    """
    records = format.records(block.data)
    bad = _malformed_records(decode, records)
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


def _malformed_records(decode: Decode, records: list[bytes]) -> Iterator[tuple[int, str]]:
    """Yield the index of each malformed record and the reason, in order."""
    found: dict[int, str] = {}
    suspects = decode.suspects(records) if isinstance(decode, SuspiciousDecoder) else {}
    for index, reason in suspects.items():
        reasons = (
            [reason] if reason is not None else [cause for _, cause in _find_bad(decode, records, index, index + 1)]
        )
        found.update((index, cause) for cause in reasons)
    rest = [index for index in range(len(records)) if index not in found]
    found.update((rest[place], cause) for place, cause in _find_bad(decode, [records[n] for n in rest], 0, len(rest)))
    return iter(sorted(found.items()))


def _find_bad(decode: Decode, records: list[bytes], start: int, end: int) -> Iterator[tuple[int, str]]:
    if start == end:
        return
    try:
        decode(b"".join(records[start:end]))
    except MalformedBlock as error:
        if end - start == 1:
            yield start, str(error)
            return
        middle = (start + end) // 2
        yield from _find_bad(decode, records, start, middle)
        yield from _find_bad(decode, records, middle, end)


def malformed(kind: str, path: str, line: int | None, offset: int, text: str, reason: str) -> RecordFormatError:
    """Return the error for a record that cannot be read, with its text shortened."""
    where = f"byte {offset}" if line is None else f"line {line}, byte {offset}"
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
    return RecordFormatError(
        f"malformed {kind} in {path!r}, {where}: {reason}: {shown!r}",
        remedy="correct the record, or let the format send such records to a side output: on_error='side-output'",
    )
