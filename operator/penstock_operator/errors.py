"""The errors of the operator, and who must act.

    OperatorError
    ├── SpecError              the job's author: the manifest requests something impossible
    ├── KubeError              the Kubernetes API refused the request or did not respond
    │   ├── Conflict           no action: another client wrote first; the pass is repeated on the current object
    │   ├── AlreadyExists      no action: the work was done before
    │   ├── Denied             the platform: RBAC or admission refused the request
    │   │   └── QuotaExceeded  the platform, or the job's author: the quota of the namespace is exceeded
    │   ├── Invalid            the job's author: the API server rejects an object built from the spec
    │   └── Unavailable        no action: the request is retried with backoff
    ├── EngineError            the job's REST API returned an error
    │   ├── EngineUnreachable  no action: the master starts, restarts or is gone; it is observed again
    │   └── ProgramRefused     the job's author: the session cluster cannot start the program
    ├── ClusterMissing         the platform, or the job's author: the FlinkCluster of the job has no pods
    ├── StorageError           the platform: checkpoint storage cannot be read (not the same as an absent checkpoint)
    │   └── StorageMissing     the platform: the operator's image lacks the code to read the storage
    ├── SecretMissing          the job's author: a Secret does not exist or lacks a key
    ├── NameTaken              the owner of an object whose name the job needs, or the job's author
    └── NotLeader              no action: another replica leads; this process stops acting

Every class has a stable `code`, which is the reason in conditions and events. Any other exception is a bug of the operator or of
a library. It is reported with the code of the root class (`unexpected`), and the operator continues to handle the object.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)


class OperatorError(Exception):
    """Base class of all errors that the operator raises intentionally."""

    code = "OperatorError"


def unexpected(error: BaseException) -> str:
    """Describe an unexpected error in one line.

    >>> unexpected(OSError(5, "Input/output error"))
    'OSError: [Errno 5] Input/output error'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def in_words(error: BaseException) -> str:
    """Describe an error. The message of an `OperatorError` is already written for users."""
    return str(error) if isinstance(error, OperatorError) else unexpected(error)


def log_unexpected(error: Exception) -> None:
    """Log an unexpected error. This is the default if no other function handles it."""
    log.error("a pass failed with an unexpected error", exc_info=error)


@dataclass(frozen=True)
class Problem:
    """A problem in a manifest: the field, what is wrong, and the remedy."""

    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}. {self.remedy}"


class SpecError(OperatorError):
    """Error of a manifest that cannot be executed. `problems` lists the reasons by field."""

    code = "InvalidSpec"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(p) for p in problems))


class KubeError(OperatorError):
    """Error response of the Kubernetes API server, or no response."""

    code = "KubernetesError"

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class Conflict(KubeError):
    """Error if the object has changed since it was read (409)."""

    code = "Conflict"


class AlreadyExists(KubeError):
    """Error if the object to create already exists (409)."""

    code = "AlreadyExists"


class Denied(KubeError):
    """Refusal by RBAC, a quota or admission (401, 403)."""

    code = "Denied"


class QuotaExceeded(Denied):
    """Refusal because the object exceeds a ResourceQuota of the namespace."""

    code = "QuotaExceeded"


class Invalid(KubeError):
    """Refusal because the object is not valid (400, 422)."""

    code = "InvalidObject"


class Unavailable(KubeError):
    """No response, or a server error (429, 5xx)."""

    code = "KubernetesUnavailable"


class EngineError(OperatorError):
    """Error response of the job's REST API."""

    code = "EngineError"

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class EngineUnreachable(EngineError):
    """No response from the job's REST API."""

    code = "EngineUnreachable"


class ProgramRefused(EngineError):
    """Refusal of a session cluster to start a program, because of the program itself."""

    code = "ProgramRefused"


class ClusterMissing(OperatorError):
    """Error if the FlinkCluster of a job, or its revision, does not exist."""

    code = "ClusterMissing"


class StorageError(OperatorError):
    """Error while reading or writing checkpoint storage."""

    code = "StorageUnavailable"


class StorageMissing(StorageError):
    """Error if this process cannot read the storage at all, because a package or a file system is missing."""

    code = "StorageUnsupported"


class SecretMissing(OperatorError):
    """Error if a Secret in the spec does not exist or lacks a key."""

    code = "SecretMissing"


class NameTaken(OperatorError):
    """Error if an object exists under a name that the job needs, but was not created for the job. The object is not
    changed.
    """

    code = "NameTaken"


class NotLeader(OperatorError):
    """Error if this replica does not hold the Lease and must not act."""

    code = "NotLeader"
