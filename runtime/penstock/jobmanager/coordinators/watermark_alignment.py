"""Watermark alignment: sources of a group wait for the one that is furthest behind (`with_watermark_alignment`).

A source that is far ahead fills the state behind it with records whose windows cannot close, because the clock is the
minimum over all of them. So each epoch's command says how far a split may be: the lowest watermark of any subtask of the
group, plus the allowed drift. Subtasks that are idle or have nothing left do not count; one that has no watermark yet holds
the group, as in Flink, so give sources that may stay silent an idleness.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.records.batch import MAX_TIMESTAMP


@dataclass(frozen=True)
class AlignedSource:
    """What is known of a source of a group. `watermarks`: of its subtasks that count, ms."""

    uid: str
    group: str
    drift_ms: int
    watermarks: tuple[int, ...]


def limits(sources: Iterable[AlignedSource]) -> dict[str, int]:
    """Uid -> watermark (ms) past which its splits wait; sources that need not wait are not in it.

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
