"""Which watch streams have begun anew, told by the lists that they begin with.

A stream is of one kind, and of one namespace if the operator is limited to some. When it breaks it begins with a list of what is
there: of what went meanwhile it says nothing, so that somebody has to list and compare. A list is a later one if it has an object
that the stream has told of before, or if the stream has told of changes since its first. That it is taken for a later one although it is not
costs lists; a later one that is empty tells nothing at all, and is left to the lists that are made now and then in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Kind

CLUSTER = ""
"""Instead of a namespace: the stream is of all of them."""


@dataclass
class _Stream:
    known: set[str] = field(default_factory=set)
    """Uids that it has told of."""
    changes: bool = False
    """It has told of something beyond its list."""


class Listings:
    """What the streams of one operator have told of."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], _Stream] = {}

    def hear(self, kind: Kind, stream: str, uid: str, *, gone: bool, listed: bool) -> bool:
        """An event of a stream (its namespace, or `CLUSTER`); whether it shows that the stream has begun anew."""
        told = self._streams.setdefault((kind.name, stream), _Stream())
        begun_anew = listed and (told.changes or uid in told.known)
        if begun_anew:
            told.known.clear()
        told.changes = not listed
        if gone:
            told.known.discard(uid)
        else:
            told.known.add(uid)
        return begun_anew
