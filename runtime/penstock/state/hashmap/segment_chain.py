"""The files of the hashmap backend's state, and the files that a checkpoint adds (a redo log over a fuzzy base).

A full checkpoint of a large table every few seconds would pause and upload too much. A log of changes alone would grow
without limit. A checkpoint therefore writes a *log* segment with the changed entries and, in parts, a new *base*:

* A *round* begins when the logs have reached the size of the base. Its start, at checkpoint R, only records the
  existing keys. Each later checkpoint writes some of these keys with their current values. The number of keys is proportional to the log
  that the checkpoint writes, so that all checkpoints take a similar time. When the last key is written, the round's slices become the base.
* The slices are written at different times. Each slice contains the effects of some changes after R. This is correct, because the logs
  after R are applied to the base in order and determine every entry that changed after R. (Database recovery calls this a fuzzy
  checkpoint.) If a key is deleted during the round, a slice may contain it, and a log deletes it. A new key is in a log.
* When the round ends, the old base and the logs up to R are dropped. The remaining logs have between one and two times
  the size of the base. Each changed byte is written twice in total, for any size of the state.

Small logs would result in many tiny files. Eight logs of the same rank (number of earlier merges) are therefore merged into one log. It has
all their keys with the current values. A small state, or a state with many changes, is written as a whole.

The functions here only make decisions, and all their arguments are immutable. A snapshot adds only to a confirmed chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.state.files import FileRef
from penstock.state.key_groups import KeyGroupRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.hashmap.slices import Round

SMALL_ENTRIES = 2_000
"""Number of entries up to which a state is always written as a whole: one small file, which needs no merges."""
FULL_SHARE = 0.5
"""Share of changed entries from which a full snapshot costs about as much as the log and its later slices."""
LOGS_PER_BASE = 1.0
"""Ratio of the bytes of logs to the bytes of the base at which a round begins."""
FAST_SHARE = 0.2
"""Share of changed entries from which a round would take only a few, much more expensive checkpoints.

The whole state is then written immediately. This pauses processing for less time than such a round.
"""
SLICE_SHARE = 0.03
"""Minimum size of a slice as a share of the base, to limit the number of slices. If 1 % of the state changes between checkpoints, no
checkpoint exceeds 4 % of the state.
"""
MAX_LOGS = 128
"""Number of log files above which a round begins. The round then proceeds even if almost nothing changes."""
MERGE_WIDTH = 8
MERGE_SHARE = 0.01
MERGE_ENTRIES = 4_096


@dataclass(frozen=True)
class StateFile:
    """A segment in storage. `groups`: the key groups that this chain uses, which may be fewer than the segment has."""

    ref: FileRef
    role: Literal["base", "log", "next"]
    groups: KeyGroupRange
    entries: int = 0
    checkpoint_id: int = 0
    level: int | None = None
    """Number of merges of a log. None means that the log cannot be merged, because its keys are not in memory."""
    changes: Any = field(default=None, compare=False, repr=False)
    """Changes in a log by table, for a merge."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.ref.to_json(),
            "role": self.role,
            "groups": [self.groups.start, self.groups.end],
            "entries": self.entries,
        }

    @staticmethod
    def of_json(entry: dict[str, Any]) -> StateFile:
        return StateFile(
            FileRef.of_json(entry),
            entry["role"],
            KeyGroupRange(*entry["groups"]),
            entry["entries"],
        )


@dataclass(frozen=True)
class Chain:
    """The files of one checkpoint: apply `base`, then `logs` in order. `next_base`: slices of the current round."""

    base: tuple[StateFile, ...] = ()
    logs: tuple[StateFile, ...] = ()
    next_base: tuple[StateFile, ...] = ()
    round: Round | None = None
    position: int = 0
    """Number of the round's entries that are already written."""
    credit: int = 0
    """Number of bytes that the round may write now. Each new log increases the number by its own size."""

    @property
    def files(self) -> tuple[StateFile, ...]:
        return (*self.base, *self.logs, *self.next_base)

    @property
    def base_bytes(self) -> int:
        return sum(file.ref.size for file in self.base)

    @property
    def base_entries(self) -> int:
        return sum(file.entries for file in self.base)

    @property
    def log_bytes(self) -> int:
        return sum(file.ref.size for file in self.logs)


@dataclass(frozen=True)
class Plan:
    """The content of a snapshot.

    If `full` is set, the snapshot has all state. Otherwise it has one log with the new changes and the changes of the last `merge` logs.
    The new log replaces these logs.

    - `level`: rank of the log. None means that the log is too large for any merge.
    - `slice_entries`: entries of the round to write (-1 means all remaining entries).
    - `start_round`: whether a round begins, which records the existing keys.
    """

    full: bool
    merge: int = 0
    level: int | None = None
    slice_entries: int = 0
    start_round: bool = False


def plan(chain: Chain | None, changed: int, total: int) -> Plan:
    """Decide what a snapshot writes.

    Args:
        chain: the confirmed files. None means that no base exists.
        changed: number of entries changed since the confirmed checkpoint.
        total: number of entries.
    """
    if chain is None or (changed and (total <= SMALL_ENTRIES or changed >= total * FULL_SHARE)):
        return Plan(full=True)
    limit = max(MERGE_ENTRIES, int(total * MERGE_SHARE))
    merge, level = merges(chain.logs, changed, limit) if changed <= limit else (0, None)
    base_bytes = max(chain.base_bytes, 1)
    many_logs = len(chain.logs) - merge > MAX_LOGS
    if chain.round is None:
        is_due = bool(changed) and (many_logs or chain.log_bytes >= base_bytes * LOGS_PER_BASE)
        if is_due and changed >= total * FAST_SHARE:
            return Plan(full=True)
        return Plan(full=False, merge=merge, level=level, start_round=is_due)
    least = base_bytes * SLICE_SHARE
    credit = max(chain.credit, least) if many_logs else chain.credit
    if credit < least:
        return Plan(full=False, merge=merge, level=level)
    per_entry = max(1.0, base_bytes / max(chain.base_entries, 1))
    return Plan(full=False, merge=merge, level=level, slice_entries=max(1, int(credit / per_entry)))


def merges(logs: Sequence[StateFile], changed: int, limit: int) -> tuple[int, int | None]:
    """Return how many of the last logs to merge with the new log, and the rank of the result.

    `MERGE_WIDTH` logs of a rank, including the new log, are merged as in a log-structured merge tree. They are not merged if the result
    would exceed `limit` entries.
    """
    merged, entries, level = 0, changed, 0
    while True:
        run = 0
        while merged + run < len(logs) and logs[-1 - merged - run].level == level:
            run += 1
        candidates = logs[len(logs) - merged - run : len(logs) - merged]
        total = entries + sum(file.entries for file in candidates)
        if run < MERGE_WIDTH - 1 or total > limit:
            return merged, level
        merged, entries, level = merged + run, total, level + 1
