"""The descriptions of each state's rows, by key group.

After a restore from several former subtasks, rows of one state may have different descriptions. The reason is that a
subtask migrates a state only when its function uses the state. Former subtasks own disjoint key groups, so the key group
of a row identifies its description. At the first use of the state, the backend reads each part with its description and
writes the part again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.state.key_groups import KeyGroupRange
from penstock.state.registry import have_same_encoding
from penstock.state.snapshot_format.segment import StateInfo

if TYPE_CHECKING:
    from collections.abc import Iterable


class Origin(NamedTuple):
    """The description `info` of the stored rows of these key groups."""

    groups: KeyGroupRange
    info: StateInfo

    def within(self, groups: KeyGroupRange) -> Origin:
        return Origin(KeyGroupRange(max(self.groups.start, groups.start), min(self.groups.end, groups.end)), self.info)


Origins = dict[str, list[Origin]]
"""Origins by the name of the state. The ranges of a state are disjoint."""


def origins_of(handle: dict[str, Any]) -> Origins:
    """Return the descriptions of rows in the handle of a RocksDB snapshot."""
    everything = KeyGroupRange(*handle["key_groups"])
    origins = {name: [Origin(everything, msgspec.convert(info, StateInfo))] for name, info in handle["states"].items()}
    for name, parts in handle.get("origins", {}).items():
        origins[name] = [
            Origin(KeyGroupRange(start, end), msgspec.convert(info, StateInfo)) for start, end, info in parts
        ]
    return origins


def add(to: Origins, name: str, origins: Iterable[Origin], groups: KeyGroupRange) -> None:
    """Add the origins of a state in these key groups."""
    clipped = (origin.within(groups) for origin in origins)
    to.setdefault(name, []).extend(origin for origin in clipped if origin.groups.start <= origin.groups.end)


def to_json(origins: Origins) -> dict[str, Any]:
    """Return the parts of states whose rows have different descriptions. The handle's `states` describe the other
    states."""
    mixed = {name: parts for name, parts in origins.items() if any(_differ(part.info, parts[0].info) for part in parts)}
    return {
        name: [[*part.groups, msgspec.to_builtins(part.info)] for part in sorted(parts, key=lambda part: part.groups)]
        for name, parts in mixed.items()
    }


def _differ(one: StateInfo, other: StateInfo) -> bool:
    return one.ttl_ms != other.ttl_ms or not have_same_encoding(one, other)


def ranges(groups: Iterable[int]) -> list[KeyGroupRange]:
    """Return key groups as ranges.

    >>> ranges({1, 2, 5})
    [KeyGroupRange(start=1, end=2), KeyGroupRange(start=5, end=5)]
    """
    found: list[KeyGroupRange] = []
    for group in sorted(groups):
        if found and found[-1].end == group - 1:
            found[-1] = KeyGroupRange(found[-1].start, group)
        else:
            found.append(KeyGroupRange(group, group))
    return found
