"""A round of the hashmap backend: the keys of a new base, in the order in which they are written.

This is the order of the tables' dictionaries. Looking up keys in the order of their memory locations is several times faster than in any
other order. This matters, because processing is stopped during the look-ups. A slice is sorted by key group when it is written.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.state.hashmap.table import Table


class Round:
    """The keys of a round by table.

    Args:
        checkpoint_id: checkpoint at which the round starts. The end of the round drops the logs up to this checkpoint.
        tables: tables whose current keys are recorded.
    """

    def __init__(self, checkpoint_id: int, tables: Iterable[Table]) -> None:
        self.checkpoint_id = checkpoint_id
        self._entries: list[tuple[Table, Sequence[Any], list[Any] | None]] = []
        for table in tables:
            by_namespace = table.entries()
            if len(by_namespace) == 1 and by_namespace[0][0] is None:
                self._entries.append((table, by_namespace[0][1], None))
            elif by_namespace:
                keys = list(chain.from_iterable(keys for _, keys in by_namespace))
                namespaces = list(chain.from_iterable(repeat(ns, len(keys)) for ns, keys in by_namespace))
                self._entries.append((table, keys, namespaces))

    def __len__(self) -> int:
        return sum(len(keys) for _, keys, _ in self._entries)

    def slice(self, position: int, count: int) -> Iterator[tuple[Table, Sequence[Any], list[Any] | None]]:
        """Yield the tables and keys of `count` entries from `position` on."""
        for table, keys, namespaces in self._entries:
            if position >= len(keys):
                position -= len(keys)
                continue
            if count <= 0:
                return
            cut = slice(position, position + count)
            yield table, keys[cut], None if namespaces is None else namespaces[cut]
            count -= min(count, len(keys) - position)
            position = 0
