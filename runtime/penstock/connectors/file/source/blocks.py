"""How the bytes of a file are cut into blocks of whole records.

A block is about as large as the bounds of one read allow. The cutter estimates the number of records from the length of the
previous records. Positions are byte offsets. In a compressed file, they are offsets in the decompressed content.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.connectors.core.source import ReadBounds
from penstock.connectors.file.source.byte_source import ByteSource
from penstock.connectors.file.source.enumerator import FileRange
from penstock.connectors.formats.record_format import Block, RejectedRecord, StreamFormat, malformed

_LONGEST_RECORD = 64 << 20
_KEPT = 64 << 10
"""Number of bytes that the side output gets of a line longer than `_LONGEST_RECORD`."""
_FIRST_GUESS = 128
"""Assumed bytes of a record before the first record was read."""
_BOM = b"\xef\xbb\xbf"


class BlockCutter:
    """Reader of the blocks of a split. `begin` sets the position, which is in `offset` and `line`."""

    def __init__(self, source: ByteSource, part: FileRange, format: StreamFormat, *, compressed: bool) -> None:
        self._source = source
        self._format = format
        self._path = part.path
        self._start = part.start
        self._end = (1 << 62) if compressed else part.end
        self._whole = compressed or part.start == 0
        self.offset = 0
        self.line: int | None = 1 if self._whole else None
        self.at_end = False
        self.rejected: list[RejectedRecord] = []
        self._record_size = float(_FIRST_GUESS)
        self.header = b""

    def begin(self, position: Any) -> None:
        """Go to a position, or to the first record.

        The first record follows the UTF-8 byte order mark, the header and the previous range's last record.
        """
        first = self._head() if self._format.header_lines or (self._start == 0 and position is None) else 0
        if position is not None:
            self.offset, self.line = position
        elif self._start == 0:
            self.offset = first
            self.line = 1 + self._format.header_lines
        else:
            self.offset = max(self._start, first)
            if self._start >= first:
                self.offset = self._after_line_end(self._start - 1)
        self.at_end = self.offset >= self._end

    def _head(self) -> int:
        """Return the length of the byte order mark and the header line. Set `header` to this line."""
        start = len(_BOM) if self._source.read_at(0, len(_BOM)) == _BOM else 0
        if not self._format.header_lines:
            return start
        end = self._after_line_end(start)
        self.header = self._source.read_at(start, end - start)
        return end

    def _after_line_end(self, offset: int) -> int:
        """Return the offset after the first line end at or after `offset`."""
        size = 4096
        while True:
            data = self._source.read_at(offset, size)
            found = data.find(b"\n")
            if found >= 0:
                return offset + found + 1
            if len(data) < size:
                return offset + len(data)
            offset += len(data)
            size = min(2 * size, 1 << 20)

    def next(self, bounds: ReadBounds) -> Block | None:
        """Return the next block; None at the end. A line that is longer than 64 MiB goes to `rejected`.

        Raises:
            RecordFormatError: a line is longer than 64 MiB, and the format does not reject records.
        """
        if self.at_end:
            return None
        offset, line = self.offset, self.line
        size = max(1, int(min(bounds.max_bytes, self._record_size * bounds.max_records * 0.98, _LONGEST_RECORD)))
        while True:
            data = self._source.read_at(offset, size)
            is_last = len(data) < size
            cut = self._cut(data, offset, is_last=is_last)
            if not cut and (is_last or size == _LONGEST_RECORD):
                cut = (
                    data.find(b"\n") + 1
                )  # the record never ends. The block is its first line, which the decoder refuses
            if cut or not data:
                break
            if size == _LONGEST_RECORD:
                self._leave_out(data)
                return self.next(bounds)
            size = min(4 * size, _LONGEST_RECORD)
        if not cut:
            self.at_end = True
            return None
        block = data[:cut]
        lines = block.count(b"\n")
        if lines > bounds.max_records * 1.25 + 1:
            cut = self._nth_line_end(block, bounds.max_records) or cut
            block = data[:cut]
            lines = block.count(b"\n")
        self._record_size = len(block) / max(1, lines)
        self.offset = offset + cut
        self.line = None if line is None else line + lines
        self.at_end = self.offset >= self._end or (cut == len(data) and len(data) < size)
        return Block(offset, line, block)

    def _leave_out(self, data: bytes) -> None:
        """Reject the current line and go to the next line. `data` does not contain the line's end."""
        reason = f"the line is longer than {_LONGEST_RECORD >> 20} MiB"
        text = data[:_KEPT].decode("utf-8", "backslashreplace")
        if not self._format.rejects:
            raise malformed(self._format.what, self._path, self.line, self.offset, text, reason)
        self.rejected.append(
            RejectedRecord(self._path, self.line, self.offset, text, f"{reason}; only its beginning is kept")
        )
        self.offset = self._after_line_end(self.offset + len(data))
        self.line = None if self.line is None else self.line + 1
        self.at_end = self.offset >= self._end or not self._source.read_at(self.offset, 1)

    def _cut(self, data: bytes, offset: int, *, is_last: bool) -> int:
        """Return the length of the whole records at the head of `data` that begin within the range."""
        if offset + len(data) >= self._end:
            found = data.find(b"\n", max(0, self._end - 1 - offset))
            if found >= 0:
                return found + 1
            if is_last:
                return self._format.last_record_end(data, is_last=True)
            return self._format.last_record_end(data[: self._end - offset])
        return self._format.last_record_end(data, is_last=is_last)

    def _nth_line_end(self, block: bytes, count: int) -> int:
        """Return the length of about `count` lines at the head of a block; 0 if no record ends there."""
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
        return self._format.last_record_end(block[: int(ends[count - 1]) + 1])
