"""The interface of stores in which parts survive a crash and become visible exactly once.

A part is written as a stream. At a barrier the writer does one of two things:

* It *persists* the part. Everything so far is durable, and the part remains open. The returned state lets another process
  continue from exactly this point.
* It *closes* the part. The returned committable lets another process make the part visible exactly once, whatever fails in between.

A store that cannot continue a half-written part (`resumable` False) closes its parts at every checkpoint.

The design protects against three dangers:

* **A zombie** is the writer of an attempt that was given up but still runs. Its writes after the checkpoint must not get
  into the part that its successor continues. So a successor continues in a separate file, or with separate part numbers.
* **An old snapshot** may have an open part that a later checkpoint finished. The part's bytes are visible then. `resume`
  returns None, and the writer begins a new part.
* **A missing part that was never finished** means that its records are lost. The store raises an error, and does not begin a new file.

States and committables can be encoded as JSON (states may hold bytes) and contain no credentials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.common.errors import SinkError

OPEN = "open"
"""Kind of a committable for a piece of a part that is still open. The committable only protects the piece from removal."""
FINISHED = "finished"


class PartStream(ABC):
    """A part that is being written. `size` is the number of bytes written so far."""

    size: int = 0

    @property
    def is_full(self) -> bool:
        """Return True if the store accepts little more data for this part. The writer then closes it despite the rolling policy."""
        return False

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def persist(self) -> dict[str, Any]:
        """Make everything durable. Return the state from which `RecoverableStore.resume` continues."""

    @abstractmethod
    def close_for_commit(self) -> dict[str, Any]:
        """Make everything durable and end the part. Return the committable (`kind` FINISHED)."""

    @abstractmethod
    def dispose(self) -> None:
        """Free handles. The written data remains until `discard_unreferenced`."""


class RecoverableStore(ABC):
    """A store of parts on one kind of file system."""

    resumable: bool = True

    @abstractmethod
    def open(self, directory: str, name: str) -> PartStream:
        """Begin a part that will be `directory/name`."""

    @abstractmethod
    def resume(self, state: dict[str, Any], failovers: int) -> PartStream | None:
        """Continue a persisted part. Return None if the part is already visible.

        Args:
            failovers: number of attempts that started since the part was persisted, including this one; from 1. Each may have a
                writer that still runs.

        Raises:
            SinkError: the persisted data is gone or has changed.
        """

    @abstractmethod
    def commit(self, committable: dict[str, Any]) -> None:
        """Make a closed part visible. Do nothing if it is already visible.

        Raises:
            SinkError: the part is gone, or another file has its name.
        """

    @abstractmethod
    def abort(self, committable: dict[str, Any]) -> None:
        """Remove a closed part that will not be committed. Do nothing if it is gone."""

    @abstractmethod
    def discard_unreferenced(
        self, base_path: str, owner: str, keep: list[dict[str, Any]], below: int | None = None
    ) -> None:
        """Remove the owner's invisible pieces below a path, except those that a committable in `keep` names.

        Args:
            below: only pieces of attempts before this attempt; None means pieces of any attempt.
        """


def open_marker(state: dict[str, Any]) -> dict[str, Any]:
    """Return the committable that keeps the pieces of a persisted part."""
    return {"kind": OPEN, **{key: state[key] for key in ("path", "temp", "upload") if key in state}}


def lost(path: str, problem: str) -> SinkError:
    """Return the error for a part whose records are lost."""
    return SinkError(
        f"the unfinished part {path!r} cannot be restored: {problem}",
        remedy="it was removed or overwritten outside the job, so its records since the last roll are lost. Restore a "
        "newer checkpoint, or restore without this sink's state and write the records again",
    )
