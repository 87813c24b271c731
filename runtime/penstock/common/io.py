"""`InputFormat`: base of what `StreamExecutionEnvironment.create_input` takes."""

from __future__ import annotations

from abc import ABC


class InputFormat(ABC):  # noqa: B024 - what it reads differs by format
    """A source of records that knows their type; those of `penstock.datastream.formats` are such."""
