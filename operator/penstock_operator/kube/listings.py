"""Detection of watch streams that have restarted, based on the lists with which they start.

A stream covers one kind. If the operator is limited to some namespaces, each stream also covers only one of them. A
broken stream restarts with a list of the existing objects. It does not report which objects were deleted while it was
broken. So the operator must list the objects and compare them with its copy.

A list shows a restart if it contains an object that the stream has reported before. A list also shows a restart if the
stream has reported changes since its previous list. A false detection only costs extra lists. A restart with an empty
list is not detected. The periodic lists then find the objects that were deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Kind

ALL_NAMESPACES = ""
"""Name of a stream that covers all namespaces."""


@dataclass
class _Stream:
    known: set[str] = field(default_factory=set)
    """uids of the objects that the stream has reported."""
    changes: bool = False
    """Whether the stream has reported changes since its last list."""


class Listings:
    """The objects that the streams of one operator have reported."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], _Stream] = {}

    def handle_event(self, kind: Kind, stream: str, uid: str, *, deleted: bool, listed: bool) -> bool:
        """Record an event of a stream. Return whether the event shows that the stream has restarted.

        `stream` is the stream's namespace, or `ALL_NAMESPACES`.
        """
        state = self._streams.setdefault((kind.name, stream), _Stream())
        has_restarted = listed and (state.changes or uid in state.known)
        if has_restarted:
            state.known.clear()
        state.changes = not listed
        if deleted:
            state.known.discard(uid)
        else:
            state.known.add(uid)
        return has_restarted
