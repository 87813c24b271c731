"""Leadership of a job's checkpoints: numbered claims, bases, and manifests that count only if the leader wrote them.

The leader election is elsewhere (a Kubernetes Lease, a lock file). Two processes can both believe that they hold a
Lease. This module makes such a mistake harmless. docs/checkpoint-protocol.md, 3.2, has the steps and the proof. In
short:

1. Claim a number with a conditional put.
2. Record durably from which checkpoint the history continues.
3. Act only after a listing that shows no higher claim.
4. Use a checkpoint only if a listing *after* the put of its manifest also shows no higher claim.

`Fenced` is final: the JobManager stops and does not try again. So `Fenced` is raised only for a claim or a manifest of
another JobManager. An earlier claim of this JobManager may exist although its put was not answered. Such a claim
contains the id of this JobManager's `Candidate`, so it is recognized and skipped. Any other unexplained state is a
`StorageError` and is tried again.
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
_CLAIM_REMEDY = "this file determines the leader of the job. Only Penstock may write into this folder"


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
    """The outcome of publishing a manifest."""

    COMPLETE = "durable, and this leader may act on it"
    NUMBER_TAKEN = "a late manifest of a superseded leader has this number; that manifest is void"


def list_leader_folder(storage: CheckpointStorage) -> LeaderFolder:
    names = storage.list_names(LEADER)
    claims = [epoch for epoch in map(parse_claim, names) if epoch is not None]
    bases = [epoch for epoch in map(parse_base, names) if epoch is not None]
    return LeaderFolder(sorted(claims), sorted(bases))


def candidate_of(storage: CheckpointStorage, epoch: int) -> str:
    """Return the id of the candidate that claimed a number, or an empty string if the claim does not exist."""
    try:
        return read_record(storage, claim_path(epoch), ClaimRecord, _CLAIM_REMEDY).candidate
    except ObjectMissing:
        return ""


def read_bases(storage: CheckpointStorage, epochs: list[int] | None = None) -> dict[int, Base]:
    """Return the bases by epoch. A base that was removed after the listing is left out.

    Raises:
        SnapshotTorn: a base cannot be read, even after a retry.
    """
    remedy = "this file determines which checkpoints are valid. Restore a checkpoint or savepoint by its path"
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
    """Return a unique name for each call.

    >>> new_owner("jm-1") != new_owner("jm-1")
    True
    """
    return f"{name or socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"


class Candidate:
    """A JobManager that leads a job or wants to lead it. A JobManager has one candidate for all its attempts. Only one
    thread uses the candidate.

    The candidate knows the claims that it has won, and the claim whose put was not answered. Only claims of other
    candidates fence it.
    """

    def __init__(self, storage: CheckpointStorage, name: str = "") -> None:
        self.storage = storage
        self.name = name
        self.id = new_owner(name)
        self._won = 0
        self._tried = 0
        """The highest number that this candidate may have claimed. It is above `_won` if the outcome of the put of this
        number is unknown.
        """

    def claim(self, above: int | None = None) -> Leadership:
        """Claim the next number. The first claim fences the current leader. Later claims succeed only if no other candidate took over.

        Args:
            above: highest number that this candidate has seen. If it is given, the first claim succeeds only if no other candidate has
                claimed a higher number.

        Raises:
            Fenced: another candidate took a higher number.
            StorageError: the store did not respond, or refused. It is safe to claim again later.
        """
        for _ in range(_MAX_RACES):
            highest = list_leader_folder(self.storage).highest_claim
            if highest > max(self._won, above or 0) and self._is_superseded(
                highest, self._won > 0 or above is not None
            ):
                raise fenced(self.storage, self._won or self._tried, highest)
            epoch = max(highest, self._won) + 1
            record = ClaimRecord(epoch, new_owner(self.name), int(time.time() * 1000), self.id)
            before, self._tried = self._tried, epoch
            if self.storage.put_if_absent(claim_path(epoch), msgspec.json.encode(record)):
                self._won = epoch
                leadership = Leadership(self, epoch, record.owner)
                leadership.check()  # a claim with this number may have existed and been deleted
                return leadership
            self._tried = before  # another candidate, or an earlier late put, has the number: list again
        raise StorageError(
            f"other JobManagers took the leadership of {self.storage.url} {_MAX_RACES} times in a row",
            remedy="too many JobManagers start for one job. Check that each job has one master and its own job id",
        )

    def _is_superseded(self, highest: int, is_bound: bool) -> bool:
        """Return whether a higher claim supersedes this candidate.

        Args:
            is_bound: whether every claim of another candidate supersedes it. Otherwise, a candidate that never tried is not superseded.
        """
        if highest > self._tried:
            return is_bound or self._tried > 0
        try:
            claim = read_record(self.storage, claim_path(highest), ClaimRecord, _CLAIM_REMEDY)
        except (
            ObjectMissing
        ):  # a JobManager with a higher number deleted the claim. The listing after the next put shows that number.
            return False
        except SnapshotTorn as torn:
            raise StorageError(torn.message, remedy=torn.remedy) from torn
        return claim.candidate != self.id and is_bound


class Leadership:
    """A candidate's claim for one attempt. Thread-safe, because its state changes only once, when a check shows that
    the leadership is lost.
    """

    def __init__(self, candidate: Candidate, epoch: int, owner: str) -> None:
        self.candidate = candidate
        self.storage = candidate.storage
        self.epoch = epoch
        self.owner = owner
        self._fenced_by: int | None = None

    @classmethod
    def take(cls, storage: CheckpointStorage, name: str = "") -> Leadership:
        """Claim with a new candidate. This fences the current leader. It raises the errors of `Candidate.claim`."""
        return Candidate(storage, name).claim()

    def renew(self) -> Leadership:
        """Claim the next epoch for another attempt of the same JobManager. It raises the errors of `Candidate.claim`."""
        return self.candidate.claim()

    def begin(self, base: Base) -> None:
        """Record from which snapshot the history continues. Act (commit, remove, start) only after this has returned.

        Raises:
            Fenced: another JobManager took over.
            StorageError: the store did not respond, or refused.
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
                f"{self.storage.url_of(base_path(self.epoch))} cannot be written: the store reports that it exists with other "
                "content, but no other JobManager leads",
                remedy="the job starts another attempt. If the error repeats, check which other process writes into this folder",
            )

    def check(self, storage: CheckpointStorage | None = None) -> None:
        """List the claims once, to check that this leader is still the newest.

        Args:
            storage: the same folder with other timeouts; None means the job's storage.

        Raises:
            Fenced: a higher claim exists.
        """
        storage = storage or self.storage
        if self._fenced_by is None:
            highest = list_leader_folder(storage).highest_claim
            if highest <= self.epoch:
                return
            self._fenced_by = highest
        raise fenced(storage, self.epoch, self._fenced_by)

    def publish(self, manifest: Manifest) -> PublishOutcome:
        """Store a checkpoint's manifest: list, put if absent, list again.

        Raises:
            Fenced: this leader must not act on the manifest. The successor decides whether the manifest counts.
            StorageError: the manifest was not stored. If `outcome_unknown` is set, it may have been stored and the
                checkpoint is in doubt.
        """
        if manifest.leader_epoch != self.epoch:
            raise ValueError(f"manifest of epoch {manifest.leader_epoch} published by leader {self.epoch}")
        self._check_before_put()
        url = metadata_url(self.storage.url_of(checkpoint_folder(manifest.checkpoint_id)))
        won = self.storage.store.put_if_absent(url, encode_manifest(manifest))
        try:
            self.check()
            return PublishOutcome.COMPLETE if won else self._outcome_of_existing(url, manifest)
        except StorageError as error:
            error.outcome_unknown = True
            raise

    def _check_before_put(self) -> None:
        try:
            self.check()
        except StorageError as error:
            error.outcome_unknown = False
            raise

    def _outcome_of_existing(self, url: str, manifest: Manifest) -> PublishOutcome:
        try:
            other = read_manifest(self.storage.store, url)
        except ObjectMissing as missing:
            raise StorageError(
                f"cannot put {url}: the store reports that it exists, but the object cannot be read",
                remedy="the next checkpoint gets another number. If the error repeats, the conditional puts of the store do not work",
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
                f"cannot put {url}: another manifest of the same leader and number exists",
                remedy="the next checkpoint gets another number. If the error repeats, the conditional puts of the store do not work",
            )
        raise Fenced(
            f"leader {self.epoch} of {self.storage.url}: another writer with the same number stored {url}",
            remedy="the conditional puts of the store do not work. Use another store, or make sure that only one JobManager runs "
            "for the job",
        )

    def _is_own_claim(self) -> bool:
        try:
            claim = read_record(self.storage, claim_path(self.epoch), ClaimRecord, _CLAIM_REMEDY)
        except ObjectMissing:
            return False
        return claim.owner == self.owner


def fenced(storage: CheckpointStorage, epoch: int, by: int) -> Fenced:
    """Return the error for leader `epoch` after claim `by`."""
    try:
        owner = read_record(storage, claim_path(by), ClaimRecord, _CLAIM_REMEDY).owner
    except (ObjectMissing, StorageError):
        owner = "unknown"
    return Fenced(
        f"leader {epoch} of {storage.url} was superseded by {by}: another JobManager has taken over ({owner})",
        remedy="no action is needed: this JobManager stops, and the other one continues. If both start repeatedly, two "
        "deployments use the same job id",
    )
