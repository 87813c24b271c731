"""Errors of Penstock. Every class defines who must act and has a stable code.

PenstockError
├── JobError                     the job's author must act
│   ├── InvalidJob               the program cannot be built or started; nothing was touched
│   ├── KeyedStateNotAvailable   keyed state or timers without key_by
│   ├── StateNameConflict        one name, two states
│   ├── StateTypeError           a value that cannot be encoded
│   ├── StateSchemaIncompatible  restored state cannot be converted to the declared type
│   ├── RecordFormatError        a malformed input record
│   ├── UserFunctionError        the user's code raised; its frame comes first
│   ├── MemoryLimitExceeded      a process of the job used more memory than it may
│   └── RestoreRefused           the snapshot does not fit the job
├── PlatformError                the operator of the platform must act
│   ├── SourceError              an input cannot be read
│   ├── SinkError                an output cannot be written
│   ├── StorageError             checkpoint storage cannot be used
│   │   ├── StorageRefused       the store itself refused (permissions, a missing bucket): nothing was written
│   │   ├── FinalCheckpointRefused   the store refused the final checkpoint of a bounded job; a retry would fail, too
│   │   ├── ConditionalWritesUnsupported
│   │   ├── SnapshotNotFound
│   │   ├── StateNotFound        a snapshot has no operator, or no state, with that name
│   │   ├── SnapshotTorn         no manifest, or files it names are missing
│   │   ├── CorruptStateFile     checksum or size differ
│   │   ├── StateFormatUnsupported
│   │   └── LocalDiskError       a TaskManager cannot read or write its state on its own disk
│   ├── NotEnoughSlots
│   ├── CertificateError         certificate, key or CA of the REST API cannot be used
│   └── ClusterError             Spark, Java or a worker process cannot be started or was lost
└── RecoverableError             no person must act: the engine fails over by itself
    ├── EpochFailed
    ├── StateNotLocal
    ├── NotNow                   a task is starting, busy or has too many requests, so it cannot answer: try again
    ├── Fenced                   another JobManager has taken over; this JobManager stops
    └── JobSuspended             the process must shut down; the job continues in the next process that starts it
"""

from __future__ import annotations


class PenstockError(Exception):
    """Root of all errors. `message` names the thing and the value. `remedy` names the action. `code` is the same in all
    versions.
    """

    code = "PENSTOCK"
    place = "at"
    """Word before the location."""

    def __init__(self, message: str, *, remedy: str = "", operator: str = "", location: str = "") -> None:
        self.message = message
        self.remedy = remedy
        self.operator = operator
        self.location = location
        super().__init__(message, remedy, operator, location)

    def __str__(self) -> str:
        where = ""
        if self.operator:
            where += f"\n  operator: {self.operator}"
        if self.location:
            where += f"\n  {self.place}: {self.location}"
        remedy = f"\n  remedy: {self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.message}{where}{remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild,
            (type(self), self.message, self.remedy, self.operator, self.location),
        )


def _rebuild(cls: type[PenstockError], message: str, remedy: str, operator: str, location: str) -> PenstockError:
    return cls(message, remedy=remedy, operator=operator, location=location)


class JobError(PenstockError):
    code = "JOB"


class InvalidJob(JobError):
    code = "INVALID_JOB"


class KeyedStateNotAvailable(JobError):
    code = "KEYED_STATE_NOT_AVAILABLE"


class StateNameConflict(JobError):
    code = "STATE_NAME_CONFLICT"


class StateTypeError(JobError):
    code = "STATE_TYPE"


class StateSchemaIncompatible(JobError):
    code = "STATE_SCHEMA_INCOMPATIBLE"


class RecordFormatError(JobError):
    code = "RECORD_FORMAT"


class UserFunctionError(JobError):
    code = "USER_FUNCTION"
    place = "built at"  # the message has the line that raised
    trace = ""
    """Traceback of the user's code in another process. It is printed last."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.trace}" if self.trace else super().__str__()


class MemoryLimitExceeded(JobError):
    code = "MEMORY_LIMIT"


class RestoreRefused(JobError):
    code = "RESTORE_REFUSED"


class PlatformError(PenstockError):
    code = "PLATFORM"


class SourceError(PlatformError):
    code = "SOURCE"


class SinkError(PlatformError):
    code = "SINK"


class StorageError(PlatformError):
    code = "STORAGE"
    outcome_unknown = False
    """True if a write may have succeeded. The store sent no answer, so the object may exist or may still appear."""


class StorageRefused(StorageError):
    code = "STORAGE_REFUSED"


class FinalCheckpointRefused(StorageError):
    code = "FINAL_CHECKPOINT_REFUSED"


class ConditionalWritesUnsupported(StorageError):
    code = "CONDITIONAL_WRITES_UNSUPPORTED"


class SnapshotNotFound(StorageError):
    code = "SNAPSHOT_NOT_FOUND"


class StateNotFound(StorageError):
    code = "STATE_NOT_FOUND"


class SnapshotTorn(StorageError):
    code = "SNAPSHOT_TORN"


class CorruptStateFile(StorageError):
    code = "CORRUPT_STATE_FILE"


class StateFormatUnsupported(StorageError):
    code = "STATE_FORMAT_UNSUPPORTED"


class LocalDiskError(StorageError):
    code = "LOCAL_DISK"


class NotEnoughSlots(PlatformError):
    code = "NOT_ENOUGH_SLOTS"


class CertificateError(PlatformError):
    code = "CERTIFICATE"


class ClusterError(PlatformError):
    code = "CLUSTER"


class RecoverableError(PenstockError):
    code = "RECOVERABLE"


class EpochFailed(RecoverableError):
    code = "EPOCH_FAILED"


class StateNotLocal(RecoverableError):
    code = "STATE_NOT_LOCAL"


class NotNow(RecoverableError):
    code = "NOT_NOW"


class Fenced(RecoverableError):
    code = "FENCED"


class JobSuspended(RecoverableError):
    code = "JOB_SUSPENDED"
