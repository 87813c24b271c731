"""What can go wrong, and who must act.

    OperatorError
    ├── SpecError            the job's author: the manifest asks for something that cannot be done
    ├── KubeError            the Kubernetes API refused or did not answer
    │   ├── Conflict         nobody: somebody else wrote first; the pass is repeated on what is there now
    │   ├── AlreadyExists    nobody: the work was done before
    │   ├── Denied           the platform: RBAC or admission says no
    │   │   └── QuotaExceeded  the platform, or the job's author: the namespace's quota has no room
    │   ├── Invalid          the job's author: the API server rejects an object built from the spec
    │   └── Unavailable      nobody: retried with backoff
    ├── EngineError          the job's REST API answered with an error
    │   └── EngineUnreachable  nobody: the master starts, restarts or is gone; observed again
    ├── StorageError         the platform: checkpoint storage cannot be read (never the same as "there is none")
    │   └── StorageMissing   the operator's image lacks the code to read it
    ├── NameTaken            whoever has an object under a name that the job needs, or the job's author
    └── NotLeader            nobody: another replica leads; this process stops acting

Every class carries a stable `code`, used as the reason of conditions and events. What is raised beside these is a defect, of
the operator or of what it stands on: it is told under the root's code (`unexpected`), and never ends the care for an object.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)


class OperatorError(Exception):
    """Root of everything the operator raises on purpose."""

    code = "OperatorError"


def unexpected(error: BaseException) -> str:
    """What nobody foresaw, in one line.

    >>> unexpected(OSError(5, "Input/output error"))
    'OSError: [Errno 5] Input/output error'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def in_words(error: BaseException) -> str:
    """What is raised on purpose speaks for itself."""
    return str(error) if isinstance(error, OperatorError) else unexpected(error)


def log_unexpected(error: Exception) -> None:
    """Where nobody else keeps account of defects."""
    log.error("a pass failed in a way that nobody foresaw", exc_info=error)


@dataclass(frozen=True)
class Problem:
    """Something in a manifest that must be changed: where, what is wrong, what to do."""

    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}. {self.remedy}"


class SpecError(OperatorError):
    """A manifest cannot be carried out; `problems` says why, field by field."""

    code = "InvalidSpec"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(p) for p in problems))


class KubeError(OperatorError):
    """The Kubernetes API server answered with an error, or not at all."""

    code = "KubernetesError"

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class Conflict(KubeError):
    """The object changed since it was read (409)."""

    code = "Conflict"


class AlreadyExists(KubeError):
    """The object to be created is there (409)."""

    code = "AlreadyExists"


class Denied(KubeError):
    """Refused by RBAC, quota or admission (401, 403)."""

    code = "Denied"


class QuotaExceeded(Denied):
    """A ResourceQuota of the namespace has no room for the object."""

    code = "QuotaExceeded"


class Invalid(KubeError):
    """The object is not valid (400, 422)."""

    code = "InvalidObject"


class Unavailable(KubeError):
    """No answer, or a server error (429, 5xx)."""

    code = "KubernetesUnavailable"


class EngineError(OperatorError):
    """The job's REST API answered with an error."""

    code = "EngineError"

    def __init__(self, message: str, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class EngineUnreachable(EngineError):
    """The job's REST API did not answer."""

    code = "EngineUnreachable"


class StorageError(OperatorError):
    """Checkpoint storage could not be read or written."""

    code = "StorageUnavailable"


class StorageMissing(StorageError):
    """This process cannot read the storage at all (a missing package or file system)."""

    code = "StorageUnsupported"


class NameTaken(OperatorError):
    """An object under a name that the job needs was not made for it, and is not touched."""

    code = "NameTaken"


class NotLeader(OperatorError):
    """This replica does not hold the lease and must not act."""

    code = "NotLeader"
