"""The ledger of sink commits: nothing that was pre-committed may be forgotten before its commit is confirmed (I7).

A committable is *open* until a checkpoint that covers it is complete, then *handed out* to be committed, then confirmed
and gone. Every manifest names all that are not confirmed: those of its own checkpoint, those of abandoned ones before it
(their records are part of its state), and those that are being committed right now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class _Entry:
    checkpoint_id: int
    uid: str
    committables: list[Any] = field(default_factory=list)
    handed_out_with: int | None = None


class CommitLedger:
    """Not thread-safe: used by the coordinator's thread.

    >>> ledger = CommitLedger()
    >>> ledger.add(1, "sink", ["a"]); ledger.add(2, "sink", ["b"])
    >>> ledger.for_manifest(2)
    {'sink': ['a', 'b']}
    >>> ledger.hand_out(2)
    {'sink': ['a', 'b']}
    >>> ledger.add(3, "sink", ["c"]); ledger.for_manifest(3)
    {'sink': ['a', 'b', 'c']}
    >>> ledger.confirm(2)
    ['a', 'b']
    >>> ledger.for_manifest(3)
    {'sink': ['c']}
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(self, checkpoint_id: int, uid: str, committables: list[Any]) -> None:
        if committables:
            self._entries.append(_Entry(checkpoint_id, uid, list(committables)))

    def for_manifest(self, checkpoint_id: int) -> dict[str, list[Any]]:
        return _by_uid(entry for entry in self._sorted() if entry.checkpoint_id <= checkpoint_id)

    def hand_out(self, checkpoint_id: int) -> dict[str, list[Any]]:
        """The checkpoint is complete: what is to be committed now."""
        due = [
            entry for entry in self._sorted() if entry.handed_out_with is None and entry.checkpoint_id <= checkpoint_id
        ]
        for entry in due:
            entry.handed_out_with = checkpoint_id
        return _by_uid(due)

    def confirm(self, checkpoint_id: int) -> list[Any]:
        """What was handed out with this checkpoint has been committed; returns it."""
        done = [entry for entry in self._entries if entry.handed_out_with == checkpoint_id]
        self._entries = [entry for entry in self._entries if entry.handed_out_with != checkpoint_id]
        return [committable for entry in done for committable in entry.committables]

    def clear(self) -> None:
        """The attempt is over; the restored manifest says what is still to be committed."""
        self._entries = []

    @property
    def promised(self) -> dict[int, list[Any]]:
        """What completed checkpoints promise and is not confirmed, by the checkpoint that it was handed out with."""
        found: dict[int, list[Any]] = {}
        for entry in self._entries:
            if entry.handed_out_with is not None:
                found.setdefault(entry.handed_out_with, []).extend(entry.committables)
        return found

    @property
    def uncommitted(self) -> int:
        """Complete checkpoints whose commits are not confirmed."""
        return len({entry.handed_out_with for entry in self._entries if entry.handed_out_with is not None})

    @property
    def unconfirmed(self) -> dict[str, list[Any]]:
        return _by_uid(self._sorted())

    def _sorted(self) -> list[_Entry]:
        return sorted(self._entries, key=lambda entry: entry.checkpoint_id)


def _by_uid(entries: Iterable[_Entry]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for entry in entries:
        found.setdefault(entry.uid, []).extend(entry.committables)
    return found
