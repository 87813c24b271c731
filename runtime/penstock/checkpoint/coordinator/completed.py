"""The retained checkpoints, newest last, and the rule that decides when a checkpoint is dropped. Callers hold the
coordinator's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.files.codec import objects_of
from penstock.checkpoint.files.registry import SharedStateRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.checkpoint.files.manifest import Manifest


@dataclass(frozen=True)
class _Kept:
    manifest: Manifest
    is_in_doubt: bool = False
    """True if no answer shows whether the manifest was stored. The checkpoint never counts, and the next complete
    checkpoint removes it.
    """

    @property
    def holder(self) -> str:
        return f"chk-{self.manifest.checkpoint_id}"


class CompletedCheckpoints:
    """The newest `retained` checkpoints. The registry counts the files that these checkpoints need.

    The list starts with the manifests that a recovery found. New checkpoints displace these checkpoints like any
    others.
    """

    def __init__(self, manifests: Iterable[Manifest], retained: int) -> None:
        self.registry = SharedStateRegistry()
        self.retained = retained
        self.has_own = False
        """Whether a checkpoint was added after the restore."""
        self._kept = [_Kept(manifest) for manifest in manifests]
        for kept in self._kept:
            self.registry.register(kept.holder, _paths(kept.manifest))

    @property
    def manifests(self) -> list[Manifest]:
        return [kept.manifest for kept in self._kept if not kept.is_in_doubt]

    @property
    def has_doubts(self) -> bool:
        """Whether some checkpoint is in doubt: its manifest may be stored or may still arrive, but is not in
        `manifests`.
        """
        return any(kept.is_in_doubt for kept in self._kept)

    @property
    def doubts(self) -> int:
        """Number of checkpoints in doubt."""
        return sum(kept.is_in_doubt for kept in self._kept)

    @property
    def newest(self) -> Manifest | None:
        return self.manifests[-1] if self.manifests else None

    def add(self, manifest: Manifest) -> list[tuple[int, list[str]]]:
        """Add a complete checkpoint. Return the number of each checkpoint that it subsumes, with the files that are no longer needed."""
        self.has_own = True
        added = _Kept(manifest)
        self.registry.register(added.holder, _paths(manifest))
        sure = [kept for kept in self._kept if not kept.is_in_doubt]
        stay = sure[max(0, len(sure) + 1 - self.retained) :]
        dropped = [kept for kept in self._kept if kept not in stay]
        self._kept = [*stay, added]
        return [(kept.manifest.checkpoint_id, self.registry.release(kept.holder)) for kept in dropped]

    def add_in_doubt(self, manifest: Manifest) -> None:
        """Add a checkpoint whose manifest may exist or arrive late. Its files are kept until a later checkpoint is complete."""
        self._kept.append(_Kept(manifest, is_in_doubt=True))
        self.registry.register(f"chk-{manifest.checkpoint_id}", _paths(manifest))


def _paths(manifest: Manifest) -> list[str]:
    return objects_of(manifest)
