"""Texts of records that `penstock peek` shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.common.stacks.edge_records import EdgeRecord
from penstock.taskmanager.watching.edge_taps import _text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Record:
    def __init__(self, text: str | BaseException) -> None:
        self.text = text

    def __repr__(self) -> str:
        if isinstance(self.text, BaseException):
            raise self.text
        return self.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ud800", "\\ud800"),
        (ValueError("no unit"), "<Record without a text: ValueError('no unit')>"),
        (SystemExit(1), "<Record without a text: SystemExit(1)>"),
        (Unprintable(), "<Record without a text: <Unprintable whose repr raises RuntimeError>>"),
    ],
)
def test_every_record_has_a_text_that_can_be_sent(text: Any, expected: str) -> None:
    assert _text(None, Record(text)) == expected
    assert msgspec.msgpack.encode(EdgeRecord(1, 0, _text(None, Record(text))))
