"""Watermark alignment: the sources of a group wait for the slowest source (`with_watermark_alignment`).

The event-time clock is the minimum over all sources. If one source is far ahead, its records fill the state of downstream operators,
because their windows cannot close. So the command of each epoch contains a limit for each split. The limit is the lowest watermark of
any subtask of the group, plus the allowed drift. Subtasks that are idle or have ended are ignored. A subtask without a watermark
holds the group, as in Flink, so configure an idleness for sources without a steady input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.records.batch import MAX_TIMESTAMP


@dataclass(frozen=True)
class AlignedSource:
    """Source of an alignment group. `watermarks`: the watermarks of its active subtasks, in ms."""

    uid: str
    group: str
    drift_ms: int
    watermarks: tuple[int, ...]


def limits(sources: Iterable[AlignedSource]) -> dict[str, int]:
    """Return, for each source by uid, the watermark (ms) beyond which its splits wait. Sources that need not wait are left out.

    >>> ahead, behind = AlignedSource("a", "g", 100, (900, 950)), AlignedSource("b", "g", 50, (300,))
    >>> limits([ahead, behind, AlignedSource("c", "other", 10, ())])
    {'a': 400, 'b': 350}
    """
    known = list(sources)
    lowest: dict[str, int] = {}
    for source in known:
        for watermark in source.watermarks:
            lowest[source.group] = min(lowest.get(source.group, MAX_TIMESTAMP), watermark)
    return {s.uid: min(lowest[s.group] + s.drift_ms, MAX_TIMESTAMP) for s in known if s.group in lowest}
