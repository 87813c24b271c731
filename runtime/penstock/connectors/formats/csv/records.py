"""Finding the ends of CSV records, in time linear in the length of the text.

A quote opens a quoted value only at the beginning of a value. The next quote that is not doubled (or escaped) closes it. A separator or a
line end must follow the closing quote. So a missing closing quote is detected at the next quoted value, or at the end of the text.

The records after such a quote never become part of its value. The malformed record ends with the line in which its quote opens.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"


class Scan(NamedTuple):
    """The records of a text."""

    ends: list[int]
    """Offsets after the line end of each record."""
    malformed: dict[int, str]
    """Offsets at which malformed records begin, with the reasons."""


class RecordScanner:
    r"""A scanner that finds the records of one dialect.

    Args:
        comments: whether each line that begins with `#` is a separate record, whatever it contains.

    >>> RecordScanner(",", '"', None).scan(b'a,"b\nc"\nd,"e\nf,g\n', is_last=True)
    Scan(ends=[8, 13, 17], malformed={8: 'the quote that opens at character 3 is not closed'})
    """

    def __init__(self, delimiter: str, quote: str, escape: str | None, *, comments: bool = False) -> None:
        self._delimiter, self._quote = delimiter.encode()[0], quote.encode()[0]
        self._escape, self._comments = escape, comments
        d, q = re.escape(delimiter.encode()), re.escape(quote.encode())
        e = b"" if escape is None else re.escape(escape.encode())
        inner = rb"[^%b]*+(?:%b%b[^%b]*+)*+" % (q, q, q, q)
        plain = rb"[^%b%b\n][^%b\n]*+" % (q, d, d)
        if e:
            inner = rb"(?:[^%b%b]|%b.|%b%b)*+" % (q, e, e, q, q)
            plain = rb"(?!%b)(?:[^%b\n%b]|%b.)++" % (q, d, e, e)
        value = rb"(?:%b%b%b(?=%b|\r?\n|\r?\Z)|%b|)" % (q, inner, q, d, plain)
        self._record = re.compile(rb"%b(?:%b%b)*+(\r?\n|\r?\Z)" % (value, d, value), re.DOTALL)
        self._head = re.compile(rb"(?:%b%b)*+" % (value, d), re.DOTALL)
        self._quoted = re.compile(rb"%b%b%b" % (q, inner, q), re.DOTALL)

    def scan(self, data: bytes, *, is_last: bool) -> Scan:
        """Find the records of a text that begins with a record.

        Args:
            is_last: whether the text is the end of the file. Otherwise an incomplete record is left out.
        """
        quotes = self._regular_quotes(data)
        if quotes is None or (is_last and len(quotes) % 2):
            return self._one_by_one(data, is_last=is_last)
        ends = _line_ends_outside(data, quotes).tolist()
        if is_last and data and (not ends or ends[-1] < len(data)):
            ends.append(len(data))
        return Scan(ends, {})

    def last_end(self, data: bytes, *, is_last: bool) -> int:
        """Return the length of the whole records at the head of a text."""
        if is_last:
            return len(data)
        quotes = self._regular_quotes(data)
        ends = self._one_by_one(data, is_last=False).ends if quotes is None else _line_ends_outside(data, quotes)
        return int(ends[-1]) if len(ends) else 0

    def malformed(self, data: bytes) -> dict[int, str]:
        """Return the malformed records of a text of whole records, as `scan` does."""
        quotes = self._regular_quotes(data)
        return {} if quotes is not None and len(quotes) % 2 == 0 else self._one_by_one(data, is_last=True).malformed

    def _regular_quotes(self, data: bytes) -> npt.NDArray[np.int64] | None:
        """Return the offsets of quotes, which alternately open and close values.

        Return None if the text must be scanned record by record.
        """
        if self._escape is not None or (self._comments and b"#" in data):
            return None
        content = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(content == self._quote)
        if not len(quotes):
            return quotes
        opening, closing = quotes[0::2], quotes[1::2]
        before = content[opening - 1]
        begins = (before == self._delimiter) | (before == _LINE_FEED) | (opening == 0)
        last = len(content) - 1
        after = content[np.minimum(closing + 1, last)]
        stops = (after == self._delimiter) | (after == _LINE_FEED) | (closing == last)
        if (after == _CARRIAGE_RETURN).any():
            second = content[np.minimum(closing + 2, last)]
            stops |= (after == _CARRIAGE_RETURN) & ((second == _LINE_FEED) | (closing + 1 == last))
        if begins.all() and stops.all():
            return quotes
        doubled = np.zeros(len(opening), bool)
        doubled[1:] = opening[1:] - 1 == closing[: len(opening) - 1]
        stops[: len(opening) - 1] |= doubled[1:][: len(stops)]
        return quotes if (begins | doubled).all() and stops.all() else None

    def _one_by_one(self, data: bytes, *, is_last: bool) -> Scan:
        ends: list[int] = []
        malformed: dict[int, str] = {}
        begin, length = 0, len(data)
        while begin < length:
            end = self._comment_end(data, begin) if self._comments else 0
            if end == length and not is_last and not data.endswith(b"\n"):
                break
            if not end:
                found = self._record.match(data, begin)
                if found is not None:
                    end = found.end()
                    if not found[1].endswith(b"\n") and not is_last:
                        break
                else:
                    opens, reason = self._problem(data, begin, is_last=is_last)
                    if not reason:
                        break
                    end = data.find(b"\n", opens) + 1
                    if not end and not is_last:
                        break
                    end = end or length
                    malformed[begin] = reason
            ends.append(end)
            begin = end
        return Scan(ends, malformed)

    def _problem(self, data: bytes, begin: int, *, is_last: bool) -> tuple[int, str]:
        """Return the offset of a record's wrong quote, and the reason. The reason is empty if the record may continue."""
        found = self._head.match(data, begin)
        opens = begin if found is None else found.end()
        closed = self._quoted.match(data, opens)
        if not is_last and (closed is None or closed.end() >= len(data) - 1):
            return opens, ""
        lines = data.count(b"\n", begin, opens)
        character = opens - max(begin, data.rfind(b"\n", 0, opens) + 1) + 1
        where = f"at character {character}" + (f" of line {lines + 1} of the record" if lines else "")
        line_end = data.find(b"\n", opens) + 1 or len(data)
        if closed is None or closed.end() >= line_end:
            return opens, f"the quote that opens {where} is not closed"
        text = data[closed.end() : line_end][:20].rstrip(b"\r\n").decode("utf-8", "backslashreplace")
        return opens, f"{text!r} follows the closing quote of the value that opens {where}"

    def _comment_end(self, data: bytes, begin: int) -> int:
        """Return the end of a comment that begins here, or 0 if no comment begins here."""
        end = data.find(b"\n", begin) + 1
        line = data[begin : end or len(data)]
        return (end or len(data)) if line.lstrip().startswith(b"#") else 0


def _line_ends_outside(data: bytes, quotes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the offsets after the line ends that are not within quotes."""
    lines = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_FEED)
    if len(quotes):
        lines = lines[np.searchsorted(quotes, lines) % 2 == 0]
    return np.add(lines, 1)
