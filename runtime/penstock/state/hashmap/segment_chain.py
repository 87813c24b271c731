"""Which files make up the hashmap backend's state, and which a checkpoint adds (a redo log over a fuzzy base).

A full checkpoint of a large table every few seconds would pause and upload too much; a log of changes alone would grow
for ever. So a checkpoint writes a *log* segment with the entries that changed, and, a part at a time, a new *base*:

* A *round* begins when the logs have grown to the size of the base. Its start, at checkpoint R, only notes which keys
  there are. Each later checkpoint writes some of these keys with the values they have by then, in proportion to the log
  it writes, so that no checkpoint stands out. When the last key is written the round's slices are the base.
* The slices are of different times, each with the effects of some changes after R. That does no harm: the logs after R
  are applied on top, in order, and hold the final say on every entry that changed after R. (Database recovery calls this
  a fuzzy checkpoint.) A key deleted meanwhile is in a slice and deleted by a log, a new key is in a log.
* When the round ends, the old base and the logs up to R are dropped. Logs between one and two times the base remain, and
  each byte of change is written twice in all, however large the state is.

Logs of few entries would pile up as many tiny files: eight of a kind are merged into one, by writing their keys once
more with the present values. A small state, or one of which most changed, is simply written as a whole.

Everything here is a decision over immutable values; only a confirmed chain is built upon (S43).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.state.backend import FileRef, KeyGroupRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.hashmap.slices import Round

SMALL_ENTRIES = 2_000
"""A state of so few entries is always written as a whole: one small file, nothing to merge."""
FULL_SHARE = 0.5
"""From this share of changed entries on, a full snapshot costs about as much as the log and its later slices."""
LOGS_PER_BASE = 1.0
"""Bytes of logs over bytes of base at which a round begins."""
FAST_SHARE = 0.2
"""From this share of changed entries on a round would be over in a few checkpoints, each much dearer than the others:
everything is written at once instead, which pauses processing less."""
SLICE_SHARE = 0.03
"""Slices are at least this share of the base, to keep their number down; with 1 % change no checkpoint exceeds 4 %."""
MOST_LOGS = 128
"""With more log files than that a round begins, and goes on even if hardly anything changes."""
MERGE_WIDTH = 8
MERGE_SHARE = 0.01
MERGE_ENTRIES = 4_096


@dataclass(frozen=True)
class StateFile:
    """A segment in storage. `groups`: the key groups this chain takes from it, which may be fewer than it holds."""

    ref: FileRef
    role: Literal["base", "log", "next"]
    groups: KeyGroupRange
    entries: int = 0
    checkpoint_id: int = 0
    level: int | None = None
    """Of a log: how often it was merged; None: its keys are not in memory, it cannot be."""
    changes: Any = field(default=None, compare=False, repr=False)
    """Of a log: the changes it holds, by table, for merging it."""

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
    """The files of one checkpoint: apply `base`, then `logs` in order. `next_base`: slices of the round under way."""

    base: tuple[StateFile, ...] = ()
    logs: tuple[StateFile, ...] = ()
    next_base: tuple[StateFile, ...] = ()
    round: Round | None = None
    position: int = 0
    """How many entries of the round are written."""
    credit: int = 0
    """Bytes the round may write."""

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
    """What a snapshot writes.

    `full`: everything. Else a log of the changes and of the last `merge` logs, which it replaces; `level` is its rank,
    None: too large ever to be merged; `slice_entries` of the round (-1: all that is left); `start_round`: note the keys.
    """

    full: bool
    merge: int = 0
    level: int | None = None
    slice_entries: int = 0
    start_round: bool = False


def plan(chain: Chain | None, changed: int, total: int) -> Plan:
    """
    Args:
        chain: the confirmed files; None: there are none to build upon.
        changed: entries changed since the confirmed checkpoint.
        total: entries there are.
    """
    if chain is None or (changed and (total <= SMALL_ENTRIES or changed >= total * FULL_SHARE)):
        return Plan(full=True)
    limit = max(MERGE_ENTRIES, int(total * MERGE_SHARE))
    merge, level = merges(chain.logs, changed, limit) if changed <= limit else (0, None)
    base_bytes = max(chain.base_bytes, 1)
    many_logs = len(chain.logs) - merge > MOST_LOGS
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
    """How many of the last logs to write again with this one, and the rank of the result.

    Logs of a rank are merged when `MERGE_WIDTH` come together, this one included, as in a log-structured merge tree;
    not when the result would exceed `limit` entries.
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
