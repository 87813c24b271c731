"""Leadership of a job's checkpoints: numbered claims, bases, and manifests that only the leader makes count.

Election is somebody else's business (a Kubernetes Lease, a lock file). Leases can be held by two processes at once, as far
as each of them knows; what makes that harmless is here. The steps and the proof are in docs/checkpoint-protocol.md, 3.2;
in short: claim a number by conditional put, say durably from which checkpoint the history goes on, act only after a look
that found no higher claim; and act on a checkpoint only after such a look *behind* the put of its manifest.

`Fenced` is final: the JobManager stops for good. So it is raised for nothing but a claim, or a manifest, that somebody
else wrote. A claim that stands because this JobManager's own earlier try was carried out and not answered is told by the
candidate it names, and passed over (`Candidate`); whatever else cannot be explained is a `StorageError`, and tried again.
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

from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.files.layout import (
    LEADER,
    base_path,
    checkpoint_folder,
    claim_path,
    metadata_url,
    parse_base,
    parse_claim,
)
from penstock.checkpoint.files.storage import CheckpointStorage, read_manifest, read_record
from penstock.checkpoint.leadership.lineage import Base, ManifestId
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import Fenced, SnapshotTorn, StateFormatUnsupported, StorageError

if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest

_MAX_RACES = 100
_CLAIM_REMEDY = "it says who leads the job; nothing but Penstock may write into this folder"


class ClaimRecord(msgspec.Struct, frozen=True):
    """Content of `leader/<e>`. `owner` is unique for every attempt to claim, `candidate` for every JobManager."""

    epoch: int
    owner: str
    claimed_at: int
    candidate: str = ""


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
    """By epoch; one that was removed since it was listed is left out.

    Raises:
        SnapshotTorn: one cannot be read, also when it is tried again.
    """
    remedy = "it says which checkpoints count; restore a checkpoint or savepoint by naming its path"
    found = {}
    for epoch in list_leader_folder(storage).bases if epochs is None else epochs:
        try:
            record = read_record(storage, base_path(epoch), BaseRecord, remedy)
        except ObjectMissing:
            continue
        checkpoint = None
        if record.checkpoint_id is not None and record.checkpoint_epoch is not None:
            checkpoint = ManifestId(record.checkpoint_epoch, record.checkpoint_id)
        found[epoch] = Base(record.epoch, record.first_checkpoint_id, checkpoint, record.path, record.token)
    return found


def new_owner(name: str = "") -> str:
    """Unique for each call.

    >>> new_owner("jm-1") != new_owner("jm-1")
    True
    """
    return f"{name or socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"


class Candidate:
    """A JobManager that leads a job, or wants to: one for all of its attempts. Used by one thread.

    It knows its own claims: those it has won, and the one whose put was not answered. Only claims of others fence it.
    """

    def __init__(self, storage: CheckpointStorage, name: str = "") -> None:
        self.storage = storage
        self.name = name
        self.id = new_owner(name)
        self._won = 0
        self._tried = 0
        """The highest number that it may have claimed; above `_won` if nobody knows whether that put was carried out."""

    def claim(self) -> Leadership:
        """Take the next number. The first time, whoever led until now is fenced; later, only if nobody took over since.

        Raises:
            Fenced: somebody else took a higher number meanwhile.
            StorageError: the store did not answer, or refused; to claim again later is safe.
        """
        for _ in range(_MAX_RACES):
            highest = list_leader_folder(self.storage).highest_claim
            if highest > self._won and self._is_superseded(highest):
                raise fenced(self.storage, self._won or self._tried, highest)
            epoch = max(highest, self._won) + 1
            record = ClaimRecord(epoch, new_owner(self.name), int(time.time() * 1000), self.id)
            before, self._tried = self._tried, epoch
            if self.storage.put_if_absent(claim_path(epoch), msgspec.json.encode(record)):
                self._won = epoch
                leadership = Leadership(self, epoch, record.owner)
                leadership.check()  # the number may have been given before and forgotten (protocol, 3.1)
                return leadership
            self._tried = before  # somebody else has it, or an earlier try of ours that was late: look again
        raise StorageError(
            f"leadership of {self.storage.url} was lost to others {_MAX_RACES} times in a row",
            remedy="too many JobManagers start for one job: check that each job has one master and an id of its own",
        )

    def _is_superseded(self, highest: int) -> bool:
        """By a claim above what it has won. One that never led and never tried supersedes whoever leads."""
        if highest > self._tried:
            return self._tried > 0
        try:
            claim = read_record(self.storage, claim_path(highest), ClaimRecord, _CLAIM_REMEDY)
        except ObjectMissing:  # removed by who took a higher number: the look behind the next put will find it
            return False
        except SnapshotTorn as torn:
            raise StorageError(torn.message, remedy=torn.remedy) from torn
        return claim.candidate != self.id and self._won > 0


class Leadership:
    """A candidate's claim, for one attempt. Thread-safe: it holds nothing that changes but the word that it was lost."""

    def __init__(self, candidate: Candidate, epoch: int, owner: str) -> None:
        self.candidate = candidate
        self.storage = candidate.storage
        self.epoch = epoch
        self.owner = owner
        self._fenced_by: int | None = None

    @classmethod
    def take(cls, storage: CheckpointStorage, name: str = "") -> Leadership:
        """The first claim of a new candidate: whoever led until now is fenced from here on. Raises as `Candidate.claim`."""
        return Candidate(storage, name).claim()

    def renew(self) -> Leadership:
        """The next epoch for the same JobManager, for another attempt. Raises as `Candidate.claim`."""
        return self.candidate.claim()

    def begin(self, base: Base) -> None:
        """Say from which snapshot the history goes on. Act (commit, remove, start) only after this returned.

        Raises:
            Fenced: somebody took over meanwhile.
            StorageError: the store did not answer, or refused.
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
        is_written = self.storage.put_if_absent(base_path(self.epoch), msgspec.json.encode(record))
        self.check()
        if not is_written:
            raise StorageError(
                f"{self.storage.url_of(base_path(self.epoch))} cannot be written: the store says that it exists, with "
                "another content, and nobody else leads",
                remedy="the job starts another attempt; if it comes again, look at what else writes into this folder",
            )

    def check(self, storage: CheckpointStorage | None = None) -> None:
        """One listing.

        Args:
            storage: the same folder with other patience; None: the job's own.

        Raises:
            Fenced: a higher claim is there.
        """
        storage = storage or self.storage
        if self._fenced_by is None:
            highest = list_leader_folder(storage).highest_claim
            if highest <= self.epoch:
                return
            self._fenced_by = highest
        raise fenced(storage, self.epoch, self._fenced_by)

    def publish(self, manifest: Manifest) -> PublishOutcome:
        """Store a checkpoint's manifest: look, put if absent, look again.

        Raises:
            Fenced: this leader must not act on it; whether it counts is the successor's decision.
            StorageError: with `outcome_unknown` nobody knows whether it was stored (protocol, 3.3: in doubt), else it was not.
        """
        if manifest.leader_epoch != self.epoch:
            raise ValueError(f"manifest of epoch {manifest.leader_epoch} published by leader {self.epoch}")
        self._look_before_put()
        url = metadata_url(self.storage.url_of(checkpoint_folder(manifest.checkpoint_id)))
        won = self.storage.store.put_if_absent(url, encode_manifest(manifest))
        try:
            self.check()
            return PublishOutcome.COMPLETE if won else self._judge_other(url, manifest)
        except StorageError as error:
            error.outcome_unknown = True
            raise

    def _look_before_put(self) -> None:
        try:
            self.check()
        except StorageError as error:
            error.outcome_unknown = False
            raise

    def _judge_other(self, url: str, manifest: Manifest) -> PublishOutcome:
        try:
            other = read_manifest(self.storage.store, url)
        except ObjectMissing as missing:
            raise StorageError(
                f"cannot put {url}: the store says that it exists, and has no such object",
                remedy="the next checkpoint gets another number; if it comes again, the store's conditional puts are broken",
            ) from missing
        except (SnapshotTorn, StateFormatUnsupported):
            return PublishOutcome.NUMBER_TAKEN
        if other == manifest:
            return PublishOutcome.COMPLETE
        if other.leader_epoch > self.epoch:
            raise fenced(self.storage, self.epoch, other.leader_epoch)
        if other.leader_epoch < self.epoch:
            return PublishOutcome.NUMBER_TAKEN
        if self._is_own_claim():
            raise StorageError(
                f"cannot put {url}: there is another manifest of the same leader and number",
                remedy="the next checkpoint gets another number; if it comes again, the store's conditional puts are broken",
            )
        raise Fenced(
            f"leader {self.epoch} of {self.storage.url}: another writer with the same number stored {url}",
            remedy="the store's conditional puts are broken: use another one, or see that one JobManager runs for the job",
        )

    def _is_own_claim(self) -> bool:
        try:
            claim = read_record(self.storage, claim_path(self.epoch), ClaimRecord, _CLAIM_REMEDY)
        except ObjectMissing:
            return False
        return claim.owner == self.owner


def fenced(storage: CheckpointStorage, epoch: int, by: int) -> Fenced:
    """What leader `epoch` is told when claim `by` is there."""
    try:
        owner = read_record(storage, claim_path(by), ClaimRecord, _CLAIM_REMEDY).owner
    except (ObjectMissing, StorageError):
        owner = "unknown"
    return Fenced(
        f"leader {epoch} of {storage.url} was superseded by {by}: another JobManager has taken over ({owner})",
        remedy="nothing to do: this JobManager stops and the other one goes on; if both keep coming back, "
        "two deployments run with the same job id",
    )
