"""What a snapshot needs of a table in memory, whatever the table holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.state.key_groups import keys_key_groups
from penstock.state.snapshot_format.rows import DELETE, DROP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.state.backend import KeyGroupRange
    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.keys import KeyCodec
    from penstock.state.snapshot_format.rows import FrozenRows, Rows

Space = dict[Any, Any]
Marks = dict[Any, Any]


class Changes:
    """What changed in a table: marks by namespace and key, and namespaces that were dropped as a whole.

    `gaps`: namespaces in which a value may be gone, that is, a mark `ABSENT`.
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

    `spaces` maps a namespace to a dictionary key -> cell. Changes are noted only while `tracking`: before the first
    snapshot everything is new anyway, and a job without checkpoints must not gather changes for ever.

    Args:
        name: of the state.
        codec: of values, list elements or map values.
        map_keys: codec of map keys, None unless it is a map.
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
        """What writes the keys; None: nobody asks for them before a snapshot."""

    def __len__(self) -> int:
        return sum(map(len, self.spaces.values()))

    def check_key(self, key: Any) -> None:
        """
        Raises:
            StateTypeError: a snapshot could not write it.
        """
        if self.keys is not None:
            self.keys.encode(key)

    def space(self, namespace: Any) -> Space:
        """The dictionary of a namespace, made if there is none."""
        space = self.spaces.get(namespace)
        if space is None:
            space = self.spaces[namespace] = {}
        return space

    @abstractmethod
    def track(self, *, on: bool) -> None:
        """Begin or stop to note changes; those noted so far are forgotten."""

    @abstractmethod
    def change_count(self) -> int:
        """About how many entries changed since the last `take_changes`."""

    @abstractmethod
    def take_changes(self) -> Changes:
        """The changes since the last call; the table starts afresh."""

    @abstractmethod
    def put_back(self, changes: Changes) -> None:
        """These entries count as changed again; their present content will be written."""

    @abstractmethod
    def freeze(self, changes: Changes) -> Sequence[FrozenRows]:
        """Rows of the changed entries as they are now, immutable, in the order to apply them."""

    @abstractmethod
    def freeze_keys(self, keys: Sequence[Any], namespaces: list[Any] | None) -> Sequence[FrozenRows]:
        """PUT rows of these entries; those that are gone by now are left out."""

    @abstractmethod
    def freeze_all(self) -> Sequence[FrozenRows]:
        """PUT rows of everything."""

    def entries(self) -> list[tuple[Any, Sequence[Any]]]:
        """(namespace, keys) of everything: a list of what a full snapshot has to write."""
        return [(namespace, list(space)) for namespace, space in self.spaces.items() if space]

    def namespaces(self) -> Iterator[Any]:
        return (namespace for namespace, space in list(self.spaces.items()) if space)

    def key_group_keys(self, keys: list[Any]) -> list[Any]:
        """The keys whose key groups those of these entries are."""
        return keys

    def apply(self, rows: Rows) -> None:
        """Restore: make the changes without marking them."""
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
        """Restore: drop what a namespace holds of these key groups."""
        keys = list(self.spaces.get(namespace, ()))
        of_key = keys_key_groups(self.key_group_keys(keys), max_parallelism)
        inside = ((of_key >= groups.start) & (of_key <= groups.end)).nonzero()[0].tolist()
        for index in inside:
            del self.spaces[namespace][keys[index]]
        if inside and namespace is not None and not self.spaces[namespace]:
            del self.spaces[namespace]

    def clear(self) -> None:
        """Let go of everything."""
        self.spaces.clear()
        self.root.clear()

    @abstractmethod
    def _apply(self, rows: Rows) -> None:
        """PUT, APPEND and REMOVE rows."""
