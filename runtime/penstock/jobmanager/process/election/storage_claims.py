"""Claims in an object store or a shared file system: one object for each term, and one for its heartbeat.

`election/<term>` is written once, with a conditional put. `election/<term>.beat` is written by the holder of the term, once per heartbeat. The
highest term counts. Objects of earlier terms are deleted. A late claim of a deleted term succeeds, but the listing after it shows the higher
term.
"""

from __future__ import annotations

import logging

import msgspec

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import PenstockError
from penstock.jobmanager.process.election.claims import Holder

FOLDER = "election"
_BEAT = ".beat"
_KEPT = 2
"""Number of terms whose objects are kept."""
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
        self._known: dict[int, Holder] = {}

    def current(self) -> Holder | None:
        terms = self._terms()
        if not terms:
            return None
        try:
            holder = self._holder(terms[-1])
        except ObjectMissing:  # a holder of a higher term has deleted the claim since the listing
            return self.current()
        try:
            return read_record(self._storage, _path(holder.term, beat=True), Holder, _REMEDY)
        except ObjectMissing:
            return holder

    def claim(self, candidate: Holder, over: Holder | None) -> bool:
        if not self._storage.put_if_absent(_path(candidate.term), msgspec.json.encode(candidate)):
            return False
        terms = self._terms()
        if terms[-1:] != [candidate.term]:
            return False
        self._clean(terms)
        return True

    def renew(self, holder: Holder) -> bool:
        self._storage.put(_path(holder.term, beat=True), msgspec.json.encode(holder))
        return self._terms()[-1:] == [holder.term]

    def release(self, holder: Holder) -> None:
        self.renew(msgspec.structs.replace(holder, released=True))

    def _holder(self, term: int) -> Holder:
        if term not in self._known:
            self._known = {term: read_record(self._storage, _path(term), Holder, _REMEDY)}
        return self._known[term]

    def _terms(self) -> list[int]:
        return sorted(int(name) for name in self._storage.list_names(FOLDER) if name.isdecimal())

    def _clean(self, terms: list[int]) -> None:
        old = [term for term in terms if term <= terms[-1] - _KEPT]
        try:
            self._storage.delete_many([_path(term, beat=beat) for term in old for beat in (True, False)])
        except PenstockError as error:  # the next leader deletes the objects
            logger.info("objects of earlier terms were not deleted: %s", error.message)


def _path(term: int, *, beat: bool = False) -> str:
    return f"{FOLDER}/{term}{_BEAT if beat else ''}"
