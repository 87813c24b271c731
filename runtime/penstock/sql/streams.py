"""`SqlStream`, the stream of a node, and `Inputs`, the streams from which the stream of the next node is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sql.operators.rows import KeyOf, check_key, floats_of
from penstock.sql.plan.nodes import Column

if TYPE_CHECKING:
    from penstock.datastream import DataStream


@dataclass(frozen=True)
class SqlStream:
    """The stream of a node. `changelog`: whether its records are changes instead of rows."""

    stream: DataStream[Any]
    changelog: bool


@dataclass(frozen=True)
class Inputs:
    """The inputs of a node, with their columns. `zone`: time zone of TIMESTAMP_LTZ."""

    streams: tuple[SqlStream, ...]
    columns: tuple[tuple[Column, ...], ...]
    zone: str

    @property
    def changelog(self) -> bool:
        """Whether an input has changes."""
        return any(found.changelog for found in self.streams)

    def key(self, indexes: tuple[int, ...], side: int = 0) -> KeyOf:
        """Return the key selector of an input.

        Raises:
            InvalidJob: a column is a map or a multiset, which has no hash.
        """
        check_key([self.columns[side][index] for index in indexes])
        return KeyOf(indexes, self.streams[side].changelog, floats_of(indexes, self.columns[side]))

    def process(self, indexes: tuple[int, ...], function: Any, name: str, uid: str) -> DataStream[Any]:
        """Return the stream of a keyed function of the only input."""
        (found,) = self.streams
        stream = found.stream.key_by(self.key(indexes)).process(function).name(name).uid(uid)
        return stream if indexes else stream.force_non_parallel()

    def join(
        self, keys: tuple[tuple[int, ...], tuple[int, ...]], function: Any, name: str, uid: str
    ) -> DataStream[Any]:
        """Return the stream of a keyed function of two inputs."""
        left, right = (found.stream for found in self.streams)
        connected = left.connect(right).key_by(self.key(keys[0], 0), self.key(keys[1], 1))
        stream = connected.process(function).name(name).uid(uid)
        return stream if keys[0] else stream.force_non_parallel()


Translate = Callable[[Inputs, Any, str], SqlStream]
"""Creates the stream of a node. The last argument is the uid of the node."""
