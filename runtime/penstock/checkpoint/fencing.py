"""Leadership of a job's checkpoints: numbered claims, bases, and manifests that only the leader makes count.

Election is somebody else's business (a Kubernetes Lease, a lock file). Leases can be held by two processes at once, as far
as each of them knows; what makes that harmless is here. The steps and the proof are in docs/checkpoint-protocol.md, 3.2;
in short: claim a number by conditional put, say durably from which checkpoint the history goes on, act only after a look
that found no higher claim; and act on a checkpoint only after such a look *behind* the put of its manifest.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from penstock.checkpoint.codec import encode_manifest
from penstock.checkpoint.layout import (
    LEADER,
    base_path,
    checkpoint_folder,
    claim_path,
    metadata_url,
    parse_base,
    parse_claim,
)
from penstock.checkpoint.lineage import Base, ManifestId
from penstock.checkpoint.object_store import ObjectMissing
from penstock.checkpoint.storage import CheckpointStorage, read_manifest
from penstock.common.errors import Fenced, SnapshotTorn, StorageError

if TYPE_CHECKING:
    from penstock.checkpoint.manifest import Manifest

_MAX_RACES = 100


class ClaimRecord(msgspec.Struct, frozen=True):
    """Content of `leader/<e>`. `owner` is unique for every attempt to claim."""

    epoch: int
    owner: str
    claimed_at: int


class BaseRecord(msgspec.Struct, frozen=True):
    """Content of `leader/<e>.base`."""

    epoch: int
    owner: str
    first_checkpoint_id: int
    checkpoint_id: int | None = None
    checkpoint_epoch: int | None = None
    path: str | None = None
    token: str = ""


@dataclass(frozen=True)
class LeaderFolder:
    """A listing of `leader/`."""

    claims: list[int]
    bases: list[int]

    @property
    def highest_claim(self) -> int:
        return max(self.claims, default=0)


class PublishOutcome(Enum):
    """What became of a manifest."""

    COMPLETE = "durable, and this leader may act on it"
    NUMBER_TAKEN = "a superseded leader's manifest of that number arrived late; it is void"


def list_leader_folder(storage: CheckpointStorage) -> LeaderFolder:
    names = storage.list_names(LEADER)
    claims = [epoch for epoch in map(parse_claim, names) if epoch is not None]
    bases = [epoch for epoch in map(parse_base, names) if epoch is not None]
    return LeaderFolder(sorted(claims), sorted(bases))


def read_bases(storage: CheckpointStorage, epochs: list[int] | None = None) -> dict[int, Base]:
    """By epoch; one that was removed since it was listed is left out."""
    found = {}
    for epoch in list_leader_folder(storage).bases if epochs is None else epochs:
        try:
            content = storage.read(base_path(epoch))
        except ObjectMissing:
            continue
        found[epoch] = _decode_base(content, storage.url_of(base_path(epoch)))
    return found


def _decode_base(content: bytes, url: str) -> Base:
    try:
        record = msgspec.json.decode(content, type=BaseRecord)
    except msgspec.MsgspecError as error:
        raise SnapshotTorn(
            f"{url} is not a readable record ({len(content)} bytes): {error}",
            remedy="it says which checkpoints count; restore a checkpoint or savepoint by naming its path",
        ) from error
    checkpoint = None
    if record.checkpoint_id is not None and record.checkpoint_epoch is not None:
        checkpoint = ManifestId(record.checkpoint_epoch, record.checkpoint_id)
    return Base(record.epoch, record.first_checkpoint_id, checkpoint, record.path, record.token)


def new_owner(name: str = "") -> str:
    """Unique for each call.

    >>> new_owner("jm-1") != new_owner("jm-1")
    True
    """
    return f"{name or socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"


class Leadership:
    """This process's claim on a job. Thread-safe: it holds nothing that changes but the word that it was lost."""

    def __init__(self, storage: CheckpointStorage, epoch: int, owner: str) -> None:
        self.storage = storage
        self.epoch = epoch
        self.owner = owner
        self._fenced_by: int | None = None

    @classmethod
    def take(cls, storage: CheckpointStorage, name: str = "") -> Leadership:
        """Take the next number. Whoever led until now is fenced from here on.

        Raises:
            Fenced: somebody took a higher number meanwhile.
            StorageError: the store did not answer; no leadership was taken that anybody would act on.
        """
        for _ in range(_MAX_RACES):
            epoch = list_leader_folder(storage).highest_claim + 1
            owner = new_owner(name)
            record = ClaimRecord(epoch, owner, int(time.time() * 1000))
            if storage.put_if_absent(claim_path(epoch), msgspec.json.encode(record)):
                leadership = cls(storage, epoch, owner)
                leadership.check()  # the number may have been given before and forgotten (protocol, 3.1)
                return leadership
        raise StorageError(
            f"leadership of {storage.url} was lost to others {_MAX_RACES} times in a row",
            remedy="too many JobManagers start for one job: check that each job has one master and an id of its own",
        )

    def renew(self, name: str = "") -> Leadership:
        """The next epoch for the same JobManager, for another attempt; only if nobody else has taken over since.

        Raises:
            Fenced: somebody has.
        """
        self.check()
        owner = new_owner(name)
        record = ClaimRecord(self.epoch + 1, owner, int(time.time() * 1000))
        if not self.storage.put_if_absent(claim_path(record.epoch), msgspec.json.encode(record)):
            self._fenced_by = record.epoch
            raise self._lost(record.epoch, "a JobManager with a higher number has taken over")
        renewed = Leadership(self.storage, record.epoch, owner)
        renewed.check()
        return renewed

    def begin(self, base: Base) -> None:
        """Say from which snapshot the history goes on. Act (commit, remove, start) only after this returned.

        Raises:
            Fenced: somebody took over meanwhile.
        """
        record = BaseRecord(
            self.epoch,
            self.owner,
            base.first_checkpoint_id,
            base.checkpoint.checkpoint_id if base.checkpoint else None,
            base.checkpoint.leader_epoch if base.checkpoint else None,
            base.path,
            base.token,
        )
        if not self.storage.put_if_absent(base_path(self.epoch), msgspec.json.encode(record)):
            raise self._lost(self.epoch, "its base was written by somebody else")
        self.check()

    def check(self) -> None:
        """One listing.

        Raises:
            Fenced: a higher claim is there.
        """
        if self._fenced_by is None:
            highest = list_leader_folder(self.storage).highest_claim
            if highest <= self.epoch:
                return
            self._fenced_by = highest
        raise self._lost(self._fenced_by, "a JobManager with a higher number has taken over")

    def publish(self, manifest: Manifest) -> PublishOutcome:
        """Store a checkpoint's manifest: look, put if absent, look again.

        Raises:
            Fenced: this leader must not act on it; whether it counts is the successor's decision.
            StorageError: nobody knows whether it was stored (protocol, 3.3: in doubt).
        """
        if manifest.leader_epoch != self.epoch:
            raise ValueError(f"manifest of epoch {manifest.leader_epoch} published by leader {self.epoch}")
        self.check()
        url = metadata_url(self.storage.url_of(checkpoint_folder(manifest.checkpoint_id)))
        won = self.storage.store.put_if_absent(url, encode_manifest(manifest))
        self.check()
        if won:
            return PublishOutcome.COMPLETE
        return self._judge_other(url, manifest)

    def _judge_other(self, url: str, manifest: Manifest) -> PublishOutcome:
        try:
            other = read_manifest(self.storage.store, url)
        except (ObjectMissing, StorageError):
            return PublishOutcome.NUMBER_TAKEN
        if other.leader_epoch > self.epoch:
            raise self._lost(other.leader_epoch, f"it stored checkpoint {other.checkpoint_id} already")
        if other.leader_epoch == self.epoch:
            raise self._lost(self.epoch, f"another writer with the same number stored {url}")
        return PublishOutcome.NUMBER_TAKEN

    def _lost(self, by: int, why: str) -> Fenced:
        return Fenced(
            f"leader {self.epoch} of {self.storage.url} was superseded by {by}: {why}",
            remedy="nothing to do: this JobManager stops and the other one goes on; if both keep coming back, "
            "two deployments run with the same job id",
        )
