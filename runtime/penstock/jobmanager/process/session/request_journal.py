"""Requests that outlive the leader: a request is stored before it is accepted, and its answer before it is visible.

The next leader executes the requests that have no answer, and returns the stored answers of all other requests. The ids stay the same. A client that polls a
request notices nothing but a longer wait. Masters without an election keep requests in memory only.

A request that was executed but whose answer was not stored is executed again: a second savepoint is written. A stop is not executed again,
because the record of the job's end has its savepoint.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from penstock.checkpoint.files.storage import CheckpointStorage, read_record
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.checkpoint.store.retrying_store import RetryPolicy
from penstock.common.errors import Fenced, PenstockError, SnapshotTorn, StorageError
from penstock.common.folders.storage_names import is_segment
from penstock.common.job_status import JobStatus
from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.job.ending.job_result import ResultRecord
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation

FOLDER = "requests"
KEPT = 100
"""Number of stored requests. The oldest ones with an answer are deleted."""
_ANSWER = ".answer"
_UNREADABLE = "the answer cannot be read. The request was executed"
_READERS = 16
"""Number of records that are read at the same time."""
_WITHDRAW_S = 10.0
"""Interval in seconds of attempts to delete requests that were not accepted."""
_POLICY = RetryPolicy(retry_for=5.0)
"""Retry policy: a client waits for its request to be stored."""
_REMEDY = "this file has a request to the job. Remove it, and repeat the request"

logger = logging.getLogger(__name__)


class StoredRequest(msgspec.Struct, frozen=True):
    """Content of `requests/<id>`."""

    kind: str
    arguments: dict[str, Any]
    number: int
    """Number in the order of acceptance."""


class StoredAnswer(msgspec.Struct, frozen=True):
    """Content of `requests/<id>.answer`."""

    location: str | None = None
    failure: str | None = None
    result: Any = None


class RequestJournal:
    """The requests to one job in storage. Thread-safe."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage.with_policy(_POLICY)
        self._numbers: dict[str, int] = {}
        self._answered: set[str] = set()
        self._withdrawn: set[str] = set()
        """Requests that were not accepted, and that storage may have."""
        self._lock = threading.Lock()
        self._earlier: set[str] | None = None
        self._read: dict[str, StoredRequest | StoredAnswer] = {}
        """Records that were read, by name. No record ever changes."""

    def note_earlier(self) -> None:
        """Remember the requests that exist while this process waits. Later rescales take precedence over this process's parallelism.

        This method reads them too, so that a takeover reads only newer ones.
        """
        if self._earlier is None:
            names = self._storage.list_names(FOLDER)
            self._read_all(names)
            self._earlier = set(names)

    def accept(self, operation: Operation, master: JobMaster) -> None:
        """Store a request, and its answer when it has one.

        Raises:
            StorageError: the request is not stored, so it must not be executed.
        """
        if not _is_request(operation.id):
            return
        with self._lock:
            number = max(self._numbers.values(), default=0) + 1
            self._numbers[operation.id] = number
        record = StoredRequest(operation.kind, operation.arguments, number)
        try:
            self._storage.put(f"{FOLDER}/{operation.id}", msgspec.json.encode(record))
        except PenstockError:
            self._withdraw(operation.id)
            raise
        operation.before_done = self._storing_answer(master)
        self._clean()

    def _withdraw(self, name: str) -> None:
        """Delete a request that was not accepted, in the background. Storage may have received the request although it did not respond, and
        the next leader would execute it.
        """
        with self._lock:
            del self._numbers[name]
            is_idle = not self._withdrawn
            self._withdrawn.add(name)
        if is_idle:
            threading.Thread(target=self._delete_withdrawn, name="requests", daemon=True).start()

    def _delete_withdrawn(self) -> None:
        while True:
            with self._lock:  # a repeated request with the same id is stored after this deletion
                self._withdrawn -= self._numbers.keys()
                try:
                    left = self._storage.delete_many([f"{FOLDER}/{name}" for name in self._withdrawn])
                    self._withdrawn = {path.removeprefix(f"{FOLDER}/") for path in left}
                except PenstockError as error:
                    logger.info("requests that were not accepted are not deleted yet: %s", error.message)
                if not self._withdrawn:
                    return
            time.sleep(_WITHDRAW_S)

    def load(self, master: JobMaster) -> list[Operation]:
        """Return the stored requests in the order of their acceptance. Requests with an answer are done.

        Raises:
            StorageError: storage does not respond.
        """
        names = self._storage.list_names(FOLDER)
        self._read_all(names)
        found: list[tuple[int, Operation]] = []
        for name in names:
            stored = self._read.get(name)
            if not isinstance(stored, StoredRequest):
                continue
            operation = Operation(stored.kind, stored.arguments, id=name)
            if f"{name}{_ANSWER}" in names:
                answer = self._read.get(f"{name}{_ANSWER}")
                _apply(operation, answer if isinstance(answer, StoredAnswer) else StoredAnswer(failure=_UNREADABLE))
                self._answered.add(name)
            else:
                operation.before_done = self._storing_answer(master)
            self._numbers[name] = stored.number
            found.append((stored.number, operation))
        self._read.clear()
        return [operation for _, operation in sorted(found, key=lambda item: item[0])]

    def _read_all(self, names: Collection[str]) -> None:
        """Read the requests and answers that were not read before, several at a time.

        Raises:
            StorageError: storage does not respond.
        """
        # Other names belong to puts that a crash has interrupted.
        wanted = [name for name in names if _is_request(name.removesuffix(_ANSWER)) and name not in self._read]
        if wanted:
            with ThreadPoolExecutor(_READERS, thread_name_prefix="requests") as readers:
                for name, record in zip(wanted, readers.map(self._read_one, wanted), strict=True):
                    if record is not None:
                        self._read[name] = record

    def _read_one(self, name: str) -> StoredRequest | StoredAnswer | None:
        """Return a record, or None if it does not exist or is damaged. One damaged file must not prevent the takeover of the job."""
        try:
            if name.endswith(_ANSWER):
                return read_record(self._storage, f"{FOLDER}/{name}", StoredAnswer, _REMEDY)
            return read_record(self._storage, f"{FOLDER}/{name}", StoredRequest, _REMEDY)
        except ObjectMissing:
            return None
        except SnapshotTorn as torn:
            logger.error("a request or its answer is ignored: %s", torn)
            return None

    def parallelism(self, operations: list[Operation]) -> int | None:
        """Return the parallelism of the last rescale since the start of this process, or None if there was none."""
        earlier = self._earlier or set()
        rescales = [
            o for o in operations if o.kind == "rescale" and o.is_done and not o.failure and o.id not in earlier
        ]
        return int(rescales[-1].arguments["parallelism"]) if rescales else None

    def _storing_answer(self, master: JobMaster) -> Callable[[Operation], None]:
        def store(operation: Operation) -> None:
            if operation.failure and not _leads(master):
                return  # the next leader executes the request
            failure = operation.failure and Redaction.of(master.settings.configuration).clean(operation.failure)
            answer = StoredAnswer(operation.location, failure, operation.result)
            try:
                self._storage.put(f"{FOLDER}/{operation.id}{_ANSWER}", msgspec.json.encode(answer))
                self._answered.add(operation.id)
            except PenstockError as error:
                logger.warning("the answer of request %s could not be stored: %s", operation.id, error.message)

        return store

    def _clean(self) -> None:
        with self._lock:
            extra = len(self._numbers) - KEPT
            oldest = sorted(self._answered & set(self._numbers), key=self._numbers.__getitem__)[: max(0, extra)]
            for name in oldest:
                del self._numbers[name]
                self._answered.discard(name)
        try:
            self._storage.delete_many([f"{FOLDER}/{name}{suffix}" for name in oldest for suffix in ("", _ANSWER)])
        except PenstockError as error:
            logger.info("old requests were not deleted: %s", error.message)


def _is_request(name: str) -> bool:
    return is_segment(name) and "." not in name


def _leads(master: JobMaster) -> bool:
    """Return whether a failed request has failed for good. A superseded or suspended JobManager fails requests that the next one executes."""
    if master.history.status is JobStatus.SUSPENDED or isinstance(master.error, Fenced):
        return False
    try:
        master.checkpoints.check_leads()
    except Fenced:
        return False
    except StorageError:
        pass
    return True


def _apply(operation: Operation, answer: StoredAnswer) -> None:
    if answer.failure is None:
        operation.complete(location=answer.location, result=answer.result)
    else:
        operation.fail(answer.failure)


def continue_requests(
    journal: RequestJournal, master: JobMaster, add: Callable[[Operation], object], ended: ResultRecord | None
) -> None:
    """Continue the requests to the previous leader. Requests without an answer are executed when the job runs.

    Args:
        add: function that makes a request visible to clients.
        ended: end of the job, or None if it is not recorded.

    Raises:
        StorageError: storage does not respond.
    """
    operations = journal.load(master)
    parallelism = journal.parallelism(operations)
    if parallelism is not None and master.scheduler.refuse_graph(parallelism) is None:
        master.scheduler.wanted = parallelism
    pending = [operation for operation in operations if not operation.is_done]
    for operation in operations:
        add(operation)
    if ended is not None:
        for operation in pending:
            _answer_of_ended(operation, ended, master.job_id)
        return
    cancel = next((operation for operation in pending if operation.kind == "cancel"), None)
    if cancel is not None:  # it needs no running tasks. Other requests then fail with the end of the job
        logger.info("the job is cancelled, because the previous leader received this request")
        master.request(cancel, is_inherited=True)
        pending.remove(cancel)
    if pending:
        logger.info("%d requests to the previous leader are executed when the job runs", len(pending))
        threading.Thread(target=_execute_when_running, args=(master, pending), name="requests", daemon=True).start()


def _answer_of_ended(operation: Operation, ended: ResultRecord, job_id: str) -> None:
    if operation.kind == "stop" and ended.savepoint:
        operation.complete(location=ended.savepoint)
    elif operation.kind == "cancel" and ended.status is JobStatus.CANCELED:
        operation.complete()
    else:
        operation.fail(f"job {job_id} is {ended.status.value}")


def _execute_when_running(master: JobMaster, pending: list[Operation]) -> None:
    while not master.is_done and master.history.status is not JobStatus.RUNNING:
        master.wait(0.1)
    for operation in pending:
        master.request(operation)
