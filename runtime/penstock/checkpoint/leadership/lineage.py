"""The history of a job: which manifests count, decided from claims, bases and manifests alone (pure).

A manifest may arrive after its writer was superseded. The successor decides whether the manifest belongs to the job's
history, and records this decision in its own base before it acts. docs/checkpoint-protocol.md, 3.2, has the reasons and
the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, order=True)
class ManifestId:
    """The identity of a manifest in a job: its writer and its number."""

    leader_epoch: int
    checkpoint_id: int


@dataclass(frozen=True)
class Base:
    """The starting point of leader `epoch`.

    `checkpoint`: a checkpoint of this job. `path`: the URL of a savepoint, or of another job's checkpoint. If both are None,
    the job starts empty. `first_checkpoint_id`: the lowest number that this leader may use. `token`: the last executed
    request to start from a named path. Each request is executed once (`recovery`).
    """

    epoch: int
    first_checkpoint_id: int
    checkpoint: ManifestId | None = None
    path: str | None = None
    token: str = ""


@dataclass(frozen=True)
class History:
    """The manifests that count (newest first), the `void` manifests, and the newest `base`."""

    manifests: list[ManifestId]
    void: list[ManifestId]
    base: Base | None

    @property
    def newest(self) -> ManifestId | None:
        return self.manifests[0] if self.manifests else None


def history(manifests: Iterable[ManifestId], bases: Mapping[int, Base]) -> History:
    """Return the job's history by the rule of the protocol.

    Example: leader 1 stored the manifests 5 and 6. Leader 2 continued from 6. Then manifest 7 of leader 1 arrived late:

    >>> base = Base(2, 7, ManifestId(1, 6))
    >>> late = ManifestId(1, 7)
    >>> found = history([ManifestId(1, 5), ManifestId(1, 6), late], {1: Base(1, 1), 2: base})
    >>> found.newest, found.void
    (ManifestId(leader_epoch=1, checkpoint_id=6), [ManifestId(leader_epoch=1, checkpoint_id=7)])
    """
    everything = set(manifests)
    if not bases:
        ordered = sorted(everything, reverse=True)
        return History(ordered, [], None)
    newest = bases[max(bases)]
    counted: list[ManifestId] = []
    epoch, limit = newest.epoch, None
    while True:
        of_epoch = [m for m in everything if m.leader_epoch == epoch and (limit is None or m.checkpoint_id <= limit)]
        counted += sorted(of_epoch, reverse=True)
        base = bases.get(epoch)
        if base is None or base.checkpoint is None or base.checkpoint.leader_epoch >= epoch:
            break
        epoch, limit = base.checkpoint.leader_epoch, base.checkpoint.checkpoint_id
    return History(counted, sorted(everything - set(counted)), newest)


def needed_bases(retained: Iterable[ManifestId], bases: Mapping[int, Base]) -> set[int]:
    """Return the epochs of the bases without which these manifests would not count: the base of each writer, and the newest base.

    >>> bases = {1: Base(1, 1), 2: Base(2, 7, ManifestId(1, 6)), 3: Base(3, 9, ManifestId(1, 6))}
    >>> sorted(needed_bases([ManifestId(1, 6)], bases))
    [1, 3]
    """
    needed = {manifest.leader_epoch for manifest in retained} & set(bases)
    return needed | ({max(bases)} if bases else set())


def next_checkpoint_id(checkpoint_ids: Iterable[int], bases: Mapping[int, Base]) -> int:
    """Return an unused number. It is above the number of every existing folder and above the first number of every
    leader.

    >>> next_checkpoint_id([3, 4], {1: Base(1, 1)}), next_checkpoint_id([], {2: Base(2, 17)}), next_checkpoint_id([], {})
    (5, 18, 1)
    """
    first = max((base.first_checkpoint_id for base in bases.values()), default=0)
    return max([*checkpoint_ids, first], default=0) + 1
