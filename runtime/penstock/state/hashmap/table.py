"""The interface of a table in memory, as snapshots need it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.state.key_context import NoKey
from penstock.state.key_groups import keys_key_groups
from penstock.state.snapshot_format.rows import DELETE, DROP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.key_groups import KeyGroupRange
    from penstock.state.snapshot_format.rows import FrozenRows, Rows

Space = dict[Any, Any]
Marks = dict[Any, Any]


class Changes:
    """Changes of a table: marks by namespace and key, and namespaces that were dropped as a whole.

    `gaps`: namespaces that may have a mark `ABSENT`, which means that the value is gone.
    """

    __slots__ = ("dropped", "gaps", "marks")

    def __init__(self, marks: dict[Any, Marks], dropped: set[Any], gaps: Collection[Any] = ()) -> None:
        self.marks = marks
        self.dropped = dropped
        self.gaps = gaps

    def __len__(self) -> int:
        return sum(map(len, self.marks.values())) + len(self.dropped)


class Table(ABC):
    """One state of one operator in one subtask, in memory.

    `spaces` maps a namespace to a dictionary key -> cell. Changes are recorded only while `tracking`. They are not recorded before the
    first snapshot, because all entries are new then. Also, a job without checkpoints must not collect changes without limit.

    Args:
        name: name of the state.
        codec: codec of values, list elements or map values.
        map_keys: codec of map keys. None if the state is not a map.
    """

    layout: ClassVar[str]

    def __init__(self, name: str, codec: Codec, map_keys: KeyCodec | None = None) -> None:
        self.name = name
        self.codec = codec
        self.map_keys = map_keys
        self.root: Space = {}
        self.spaces: dict[Any, Space] = {None: self.root}
        self.tracking = False
        self.keys: KeyCodec | None = None
        """Codec of the keys. None until a snapshot sets it, if only snapshots need it."""

    def __len__(self) -> int:
        return sum(map(len, self.spaces.values()))

    def check_key(self, key: Any) -> None:
        """Check a key.

        Raises:
            StateTypeError: a snapshot could not write the key.
            KeyedStateNotAvailable: no key is current.
        """
        if isinstance(key, NoKey):
            key.refuse()
        if self.keys is not None:
            self.keys.encode(key)

    def space(self, namespace: Any) -> Space:
        """Return the dictionary of a namespace. Create the dictionary if it does not exist."""
        space = self.spaces.get(namespace)
        if space is None:
            space = self.spaces[namespace] = {}
        return space

    @abstractmethod
    def track(self, *, on: bool) -> None:
        """Start or stop recording changes. The changes recorded so far are dropped."""

    @abstractmethod
    def change_count(self) -> int:
        """Return the approximate number of entries that changed since the last `take_changes`."""

    @abstractmethod
    def take_changes(self) -> Changes:
        """Return and reset the changes since the last call."""

    @abstractmethod
    def restore_changes(self, changes: Changes) -> None:
        """Mark these entries as changed again. Their current content will be written."""

    @abstractmethod
    def freeze(self, changes: Changes) -> Sequence[FrozenRows]:
        """Return immutable rows of the changed entries' current content, in the order in which a restore applies them."""

    @abstractmethod
    def freeze_keys(self, keys: Sequence[Any], namespaces: list[Any] | None) -> Sequence[FrozenRows]:
        """Return PUT rows of these entries. Entries that are gone are left out."""

    @abstractmethod
    def freeze_all(self) -> Sequence[FrozenRows]:
        """Return PUT rows of all entries."""

    def entries(self) -> list[tuple[Any, Sequence[Any]]]:
        """Return (namespace, keys) of all entries, which a full snapshot must write."""
        return [(namespace, list(space)) for namespace, space in self.spaces.items() if space]

    def namespaces(self) -> Iterator[Any]:
        return (namespace for namespace, space in list(self.spaces.items()) if space)

    def key_group_keys(self, keys: list[Any]) -> list[Any]:
        """Return the keys that decide the key groups of these entries."""
        return keys

    def apply(self, rows: Rows) -> None:
        """Apply changes during a restore, without marks."""
        if rows.op == DROP:
            for namespace in rows.namespaces or ():
                if namespace is None:
                    self.root.clear()
                else:
                    self.spaces.pop(namespace, None)
        elif rows.op == DELETE:
            for key, namespace in zip(rows.keys, rows.namespaces or repeat(None), strict=False):
                space = self.spaces.get(namespace)
                if space is not None:
                    space.pop(key, None)
                    if not space and namespace is not None:
                        del self.spaces[namespace]
        else:
            self._apply(rows)

    def drop_within(self, namespace: Any, groups: KeyGroupRange, max_parallelism: int) -> None:
        """Drop the content of a namespace in these key groups during a restore."""
        keys = list(self.spaces.get(namespace, ()))
        of_key = keys_key_groups(self.key_group_keys(keys), max_parallelism)
        inside = ((of_key >= groups.start) & (of_key <= groups.end)).nonzero()[0].tolist()
        for index in inside:
            del self.spaces[namespace][keys[index]]
        if inside and namespace is not None and not self.spaces[namespace]:
            del self.spaces[namespace]

    def clear(self) -> None:
        """Remove all content."""
        self.spaces.clear()
        self.root.clear()

    @abstractmethod
    def _apply(self, rows: Rows) -> None:
        """Apply PUT, APPEND and REMOVE rows."""
