"""A round of the hashmap backend: the keys that a new base has to hold, in the order they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.state.key_groups import keys_key_groups
from penstock.state.rows import take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.tables import Table


class Round:
    """Keys by table, sorted by key group.

    Args:
        checkpoint_id: where the round began: logs up to there are dropped when it ends.
        entries: per table its namespaces and their keys at that moment.
    """

    def __init__(self, checkpoint_id: int, entries: list[tuple[Table, list[tuple[Any, list[Any]]]]]) -> None:
        self.checkpoint_id = checkpoint_id
        self._entries = entries
        self._sorted: list[tuple[Table, list[Any], list[Any] | None]] = []
        self.is_ready = False

    def sort(self, max_parallelism: int) -> None:
        """Bring the keys into order. Slow for many keys: done by the upload thread."""
        if self.is_ready:
            return
        for table, by_namespace in self._entries:
            keys = [key for _, part in by_namespace for key in part]
            namespaces = [namespace for namespace, part in by_namespace for _ in part]
            if not keys:
                continue
            order = keys_key_groups(table.key_group_keys(keys), max_parallelism).argsort(kind="stable").tolist()
            only_root = len(by_namespace) == 1 and by_namespace[0][0] is None
            self._sorted.append((table, take(keys, order) or [], None if only_root else take(namespaces, order)))
        self._entries = []
        self.is_ready = True

    def __len__(self) -> int:
        return sum(len(keys) for _, keys, _ in self._sorted)

    def slice(self, position: int, count: int) -> Iterator[tuple[Table, list[Any], list[Any] | None]]:
        """Tables and keys of `count` entries from `position` on."""
        for table, keys, namespaces in self._sorted:
            if position >= len(keys):
                position -= len(keys)
                continue
            if count <= 0:
                return
            cut = slice(position, position + count)
            yield table, keys[cut], None if namespaces is None else namespaces[cut]
            count -= min(count, len(keys) - position)
            position = 0
