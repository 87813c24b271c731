"""Errors of Penstock. Every class says who must act and carries a stable code.

PenstockError
├── JobError                     the job's author must act
│   ├── InvalidJob               the program cannot be built or started; nothing was touched
│   ├── KeyedStateNotAvailable   keyed state or timers without key_by
│   ├── StateNameConflict        one name, two states
│   ├── StateTypeError           a value that cannot be encoded
│   ├── StateSchemaIncompatible  restored state cannot become what the program declares
│   ├── RecordFormatError        a malformed input record
│   ├── UserFunctionError        the user's code raised; its frame comes first
│   └── RestoreRefused           the snapshot does not fit the job
├── PlatformError                whoever operates the platform must act
│   ├── SourceError              an input cannot be read
│   ├── SinkError                an output cannot be written
│   ├── StorageError             checkpoint storage cannot be used
│   │   ├── StorageRefused       the store's own answer is no (permissions, a missing bucket): nothing was written
│   │   ├── FinalCheckpointRefused   it says no to what a bounded job ends with; another attempt would meet the same
│   │   ├── ConditionalWritesUnsupported
│   │   ├── SnapshotNotFound
│   │   ├── StateNotFound        a snapshot has no operator, or no state, of that name
│   │   ├── SnapshotTorn         no manifest, or files it names are missing
│   │   ├── CorruptStateFile     checksum or size differ
│   │   └── StateFormatUnsupported
│   ├── NotEnoughSlots
│   └── ClusterError             Spark, Java or a worker process cannot be started or was lost
└── RecoverableError             nobody: the engine fails over by itself
    ├── EpochFailed
    ├── StateNotLocal
    ├── NotNow                   a task that is starting, busy or asked too much cannot be looked into: ask again
    ├── Fenced                   another JobManager has taken over; this one stops
    └── JobSuspended             the process was told to leave; the job goes on where it is started again
"""

from __future__ import annotations


class PenstockError(Exception):
    """Root. `message` names the thing and the value, `remedy` what to do; `code` is stable across versions."""

    code = "PENSTOCK"

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
            where += f"\n  at: {self.location}"
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
    trace = ""
    """Where the user's code raised, in another process: printed last."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.trace}" if self.trace else super().__str__()


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
    """Of something that was written: it may be there, or arrive yet, although there was no answer that says so."""


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


class NotEnoughSlots(PlatformError):
    code = "NOT_ENOUGH_SLOTS"


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
