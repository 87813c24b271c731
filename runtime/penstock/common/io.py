"""`InputFormat`: base of the argument of `StreamExecutionEnvironment.create_input`."""

from __future__ import annotations

from abc import ABC


class InputFormat(ABC):  # noqa: B024 - the content differs by format
    """A source of records that knows their type. The formats of `penstock.datastream.formats` are subclasses."""
