"""What a store offers so that parts survive a crash and become visible exactly once.

A part is written as a stream. At a barrier it is either *persisted*: everything so far is durable, the state that is
returned lets another process go on from exactly there, and the part stays open; or it is *closed*: the committable that is
returned lets another process make it visible, once, whatever happens in between. A store that cannot go on with a
half-written part (`resumable` False) has its parts closed at every checkpoint.

Three dangers shaped this:

* **A zombie**, the writer of an attempt that was given up but still runs. What it writes after the checkpoint must not get
  into the part its successor goes on with: a successor continues in a file (or with part numbers) of its own.
* **An old snapshot** whose open part was finished by a later checkpoint. Its bytes are visible then; the part is left and
  a new one begun (`resume` gives None).
* **A part that is gone and was never finished**: its records are lost. That is an error, never a new file.

States and committables are JSON-able (states may hold bytes) and free of credentials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.common.errors import SinkError

OPEN = "open"
"""Kind of a committable that only says: this piece belongs to a part that is still open, keep it."""
FINISHED = "finished"


class PartStream(ABC):
    """A part that is being written. `size`: bytes written so far."""

    size: int = 0

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def persist(self) -> dict[str, Any]:
        """Make everything durable; the state from which `RecoverableStore.resume` goes on."""

    @abstractmethod
    def close_for_commit(self) -> dict[str, Any]:
        """Make everything durable, for good; the committable (`kind` FINISHED)."""

    @abstractmethod
    def dispose(self) -> None:
        """Free handles. What was written stays until `discard_unreferenced`."""


class RecoverableStore(ABC):
    """Parts on one kind of file system."""

    resumable: bool = True

    @abstractmethod
    def open(self, directory: str, name: str) -> PartStream:
        """Begin a part that will be `directory/name`."""

    @abstractmethod
    def resume(self, state: dict[str, Any], attempt: int) -> PartStream | None:
        """Go on with a persisted part; None if it is visible already.

        Raises:
            SinkError: what was persisted is gone or is not what it was.
        """

    @abstractmethod
    def commit(self, committable: dict[str, Any]) -> None:
        """Make a closed part visible; nothing is done if it is.

        Raises:
            SinkError: it is gone, or something else has its name.
        """

    @abstractmethod
    def abort(self, committable: dict[str, Any]) -> None:
        """Remove a closed part that will not be committed; nothing is done if it is gone."""

    @abstractmethod
    def discard_unreferenced(
        self, base_path: str, owner: str, keep: list[dict[str, Any]], below: int | None = None
    ) -> None:
        """Remove the invisible pieces of an owner below a path that none of the committables names.

        Args:
            below: only pieces of attempts before this one; None: of any.
        """


def open_marker(state: dict[str, Any]) -> dict[str, Any]:
    """The committable that keeps the pieces of a persisted part."""
    return {"kind": OPEN, **{key: state[key] for key in ("path", "temp", "upload") if key in state}}


def lost(path: str, what: str) -> SinkError:
    """The error for a part whose records are gone."""
    return SinkError(
        f"the unfinished part {path!r} cannot be restored: {what}",
        remedy="it was removed or overwritten outside the job, and its records since the last roll are lost; restore a "
        "newer checkpoint, or restore without this sink's state and write the records again",
    )
