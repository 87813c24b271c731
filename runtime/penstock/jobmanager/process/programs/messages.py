"""Descriptions of a program in a session cluster and of its jobs. The session and the program's process exchange them. The session also
stores `ProgramSpec`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from penstock.common import errors
from penstock.common.errors import (
    ClusterError,
    Fenced,
    InvalidJob,
    JobError,
    JobSuspended,
    PenstockError,
    PlatformError,
    RecoverableError,
)
from penstock.jobmanager.cluster.spark_access import Driver
from penstock.rest import errors as rest_errors

CANCELED = "CANCELED"
"""Code of the end of a program that was cancelled."""


class SentGraph(msgspec.Struct):
    """Program of `create_remote_environment`, which the client has sent as a serialized graph. `penstock`, `python`: versions of the
    client.
    """

    penstock: str
    python: str
    collects: bool
    """Whether the client requests the records (`execute_and_collect`)."""


class ProgramSpec(msgspec.Struct):
    """Program that a client has started. The session stores it until the program's jobs have ended."""

    id: str
    bundle: str
    """File name of the bundle (`common.program.bundle`). A sent graph has no bundle."""
    digest: str
    entry: str
    """`job.py`, or `module:function`, in the bundle."""
    args: list[str] = []
    parallelism: int | None = None
    configuration: dict[str, str] = {}
    restore_path: str = ""
    """Savepoint or checkpoint of the first start. Later starts continue from the newest checkpoint of each job."""
    allow_non_restored: bool | list[str] = False
    job_id: str = ""
    """Id of the first job. The ids of further jobs are derived from this id and from the order of the jobs."""
    submitted_at: int = 0
    """ms since the epoch."""
    starts: int = 0
    """Number of starts of its process so far."""
    graph: SentGraph | None = None
    """None for a program in a bundle."""
    rescaled: dict[str, int] = {}
    """Parallelism of jobs after their last rescale, by job id."""

    @property
    def is_stored(self) -> bool:
        """Return whether the program runs again after a crash or a restart of the session. A client that has read a part of the records
        could not read them from a second run.
        """
        return self.graph is None or not self.graph.collects

    def job_id_of(self, number: int) -> str:
        """Return the id of the program's job with that number, which is the same in each start of the program."""
        return (
            self.job_id
            if number == 0
            else hashlib.md5(f"{self.job_id}/{number}".encode(), usedforsecurity=False).hexdigest()
        )


class ProcessSpec(msgspec.Struct):
    """Everything that the process of a program needs at its start."""

    program: ProgramSpec
    folder: str
    """Folder of the prepared bundle. Empty for a sent graph."""
    settings: dict[str, str]
    """Settings of the cluster, for keys that the program does not set."""
    driver: Driver
    can_add_slots: bool
    plan_only: bool = False
    """Build the graph of the first job, and do not run it."""
    graph: bytes = b""
    """Serialized graph of a program of `create_remote_environment`."""


class JobStarted(msgspec.Struct):
    """Job of a program that was accepted."""

    job_id: str
    name: str


class ProgramEnd(msgspec.Struct):
    """End of a program's process. `code`: code of the error, or empty if the program ended well."""

    code: str = ""
    message: str = ""
    remedy: str = ""
    operator: str = ""
    location: str = ""
    traceback: str = ""
    plan: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    """Result of the job of a sent graph, in the shape of REST."""
    exit_code: int = 0
    """Exit code of the program, if it has called `sys.exit`."""

    @property
    def is_of_platform(self) -> bool:
        """Return whether the program may succeed later without a change, because storage or the cluster has failed."""
        return issubclass(_KINDS.get(self.code, JobError), PlatformError | RecoverableError)

    @property
    def is_of_another_session(self) -> bool:
        """Return whether another session has taken over the program's jobs."""
        return self.code in (Fenced.code, JobSuspended.code)

    @classmethod
    def of(cls, error: BaseException) -> ProgramEnd:
        if isinstance(error, PenstockError):
            return cls(error.code, error.message, error.remedy, error.operator, error.location)
        return cls(ClusterError.code, f"{type(error).__name__}: {error}")

    def error(self) -> PenstockError:
        """Return the exception that a client gets which has started the program."""
        message = self.message or "the program has ended without a job"
        kind = _KINDS.get(self.code, InvalidJob)
        return kind(message, remedy=self.remedy, operator=self.operator, location=self.location)


_KINDS: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in (*vars(errors).values(), *vars(rest_errors).values())
    if isinstance(kind, type) and issubclass(kind, PenstockError)
}
"""Exceptions by code."""
