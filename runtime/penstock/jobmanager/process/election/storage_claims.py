"""Claims in an object store or a shared file system: one object for each term, and one for its heartbeat.

`election/<term>` is written once, with a conditional put. `election/<term>.beat` is written by the holder of the term, once per heartbeat. The
highest term counts.

Terms follow each other without gaps. So a process that knows a term reads the object of the next term, and lists the folder only if this object
exists. A read costs a tenth of a listing or less. Objects of terms that are more than `_KEPT` below the highest one are deleted:

- A late claim of a deleted term succeeds, but the listing after it shows the higher term.
- A holder that was paused while its next term was claimed and deleted finds the higher term with one of its next listings (`_LIST_EVERY`).
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress

import msgspec

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import PenstockError, StorageError
from penstock.jobmanager.process.election.claims import Holder

FOLDER = "election"
_BEAT = ".beat"
_TERM = re.compile("[1-9][0-9]{0,17}")
"""Name of a claim. Files with other names, such as those of a person, are ignored."""
_LISTINGS = 5
"""Number of listings until a listed claim can be read. A holder of a higher term may delete it in between."""
_KEPT = 100
"""Number of terms whose objects are kept."""
_LIST_EVERY = 60
"""Number of heartbeats after which a holder lists the terms."""
_REMEDY = "this file states which JobManager leads. Remove it while no JobManager runs"

logger = logging.getLogger(__name__)


class StorageClaims:
    """Claims below `<storage>/election`.

    >>> claims = StorageClaims(CheckpointStorage("memory://doc/election", "cluster-1"))
    >>> claims.claim(Holder("a", term=1), None), claims.claim(Holder("b", term=1), None)
    (True, False)
    >>> claims.renew(Holder("a", term=1, beat=7))
    True
    >>> claims.current().beat
    7
    """

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage
        self._newest: Holder | None = None
        """Claim of the highest term that this process knows."""

    def current(self) -> Holder | None:
        if self._newest is None or self._exists(self._newest.term + 1):
            self._newest = self._find_newest()
        try:
            return self._beat()
        except ObjectMissing:  # no heartbeat is stored yet, or a higher term exists and the objects are deleted
            self._newest = self._find_newest()
        try:
            return self._beat()
        except ObjectMissing:
            return self._newest

    def claim(self, candidate: Holder, over: Holder | None) -> bool:
        self._newest = None
        if not self._storage.put_if_absent(_path(candidate.term), msgspec.json.encode(candidate)):
            return False
        terms = self._terms()
        if terms[-1:] != [candidate.term]:
            return False
        self._clean(terms)
        return True

    def renew(self, holder: Holder) -> bool:
        self._storage.put(_path(holder.term, beat=True), msgspec.json.encode(holder))
        if holder.beat % _LIST_EVERY == 0:
            return self._terms()[-1:] == [holder.term]
        return not self._exists(holder.term + 1)

    def release(self, holder: Holder) -> None:
        self.renew(msgspec.structs.replace(holder, released=True))

    def _beat(self) -> Holder | None:
        """Return the newest heartbeat of the highest term.

        Raises:
            ObjectMissing: the term has no heartbeat.
        """
        if self._newest is None:
            return None
        return read_record(self._storage, _path(self._newest.term, beat=True), Holder, _REMEDY)

    def _find_newest(self) -> Holder | None:
        """List the terms, and return the claim of the highest one."""
        for _ in range(_LISTINGS):
            terms = self._terms()
            if not terms:
                return None
            if self._newest is not None and self._newest.term == terms[-1]:
                return self._newest
            with suppress(ObjectMissing):  # a holder of a higher term has deleted the claim since the listing
                return read_record(self._storage, _path(terms[-1]), Holder, _REMEDY)
        raise StorageError(
            f"{self._storage.url_of(_path(terms[-1]))} is listed, but cannot be read",
            remedy="check that the storage of the election shows each object after its put",
        )

    def _exists(self, term: int) -> bool:
        try:
            self._storage.read(_path(term))
        except ObjectMissing:
            return False
        return True

    def _terms(self) -> list[int]:
        return sorted(int(name) for name in self._storage.list_names(FOLDER) if _TERM.fullmatch(name))

    def _clean(self, terms: list[int]) -> None:
        old = [term for term in terms if term <= terms[-1] - _KEPT]
        try:
            self._storage.delete_many([_path(term, beat=beat) for term in old for beat in (True, False)])
        except PenstockError as error:  # the next leader deletes the objects
            logger.info("objects of earlier terms were not deleted: %s", error.message)


def _path(term: int, *, beat: bool = False) -> str:
    return f"{FOLDER}/{term}{_BEAT if beat else ''}"
