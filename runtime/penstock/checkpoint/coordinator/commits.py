"""The ledger of sink commits. It keeps every pre-committed committable until its commit is confirmed.

A committable is *open* until a checkpoint that covers it is complete. Then it is *handed out* to be committed, and it
is removed when the commit is confirmed. Every manifest names all committables that are not confirmed:

- committables of its checkpoint
- committables of earlier abandoned checkpoints, because their records are part of its state
- committables that are being committed
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
    handed_out_by: int | None = None


class CommitLedger:
    """The ledger of one job. Not thread-safe: only the coordinator's thread uses it.

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
        """Return the committables that may be committed now, because this checkpoint is complete."""
        due = [
            entry for entry in self._sorted() if entry.handed_out_by is None and entry.checkpoint_id <= checkpoint_id
        ]
        for entry in due:
            entry.handed_out_by = checkpoint_id
        return _by_uid(due)

    def confirm(self, checkpoint_id: int) -> list[Any]:
        """Remove the committables that were handed out with this checkpoint, and return them."""
        done = [entry for entry in self._entries if entry.handed_out_by == checkpoint_id]
        self._entries = [entry for entry in self._entries if entry.handed_out_by != checkpoint_id]
        return [committable for entry in done for committable in entry.committables]

    def clear(self) -> None:
        """Clear the ledger at the end of an attempt. The restored manifest names the committables that are still to be committed."""
        self._entries = []

    @property
    def promised(self) -> dict[int, list[Any]]:
        """Return the unconfirmed committables of completed checkpoints, by the checkpoint with which they were handed out."""
        found: dict[int, list[Any]] = {}
        for entry in self._entries:
            if entry.handed_out_by is not None:
                found.setdefault(entry.handed_out_by, []).extend(entry.committables)
        return found

    @property
    def uncommitted(self) -> int:
        """Number of complete checkpoints whose commits are not confirmed."""
        return len({entry.handed_out_by for entry in self._entries if entry.handed_out_by is not None})

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
