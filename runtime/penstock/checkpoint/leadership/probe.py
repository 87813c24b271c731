"""A test when a job starts: two conditional puts show whether the store gives the guarantee that fencing needs."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.checkpoint.files.layout import LEADER
from penstock.checkpoint.store.object_store import PermanentFailure, scheme_of
from penstock.common.errors import ConditionalWritesUnsupported, StorageError

if TYPE_CHECKING:
    from penstock.checkpoint.files.storage import CheckpointStorage

logger = logging.getLogger(__name__)

_LOST = (
    "two JobManagers of one job could both lead and store a checkpoint of the same number. Records could then be "
    "lost or repeated after a failover"
)


@dataclass(frozen=True)
class ProbeReport:
    """The result of the test. `conditional_writes`: the store has the guarantee. `problem`: an explanation if the
    guarantee is missing.
    """

    url: str
    conditional_writes: bool
    problem: str = ""


def probe(storage: CheckpointStorage, *, high_availability: bool) -> ProbeReport:
    """Write, read and delete small objects under the job's `leader/`. Two conditional puts use the same name.

    Raises:
        ConditionalWritesUnsupported: in HA mode, the second put succeeds or the driver cannot pass the condition on.
        StorageError: the store cannot be used. The error names the URL and the remedy.
    """
    problem = _problem(storage)
    if not problem:
        return ProbeReport(storage.url, conditional_writes=True)
    if high_availability:
        raise ConditionalWritesUnsupported(
            f"{storage.url} has no conditional writes ({problem}), and high availability is on: {_LOST}",
            remedy="use a store with If-None-Match: * (AWS S3, versitygw, MinIO, Ceph since Squid), Google or Azure storage, or "
            "file://. Or disable high availability, and make sure that only one JobManager runs",
        )
    logger.warning(
        "%s has no conditional writes (%s). Without high availability the job runs, but %s: make sure that only one "
        "JobManager runs for a job.",
        storage.url,
        problem,
        _LOST,
    )
    return ProbeReport(storage.url, conditional_writes=False, problem=problem)


def _problem(storage: CheckpointStorage) -> str:
    name = f"{LEADER}/probe-{uuid.uuid4().hex}"
    plain, conditional = f"{name}-plain", f"{name}-conditional"
    try:
        storage.put(plain, b"plain")  # if this fails, the store cannot be used at all
        if storage.read(plain) != b"plain":
            return "it returned other content than was written"
        if not storage.store.conditional_puts:
            return f"the driver for {scheme_of(storage.url)}:// checks whether an object exists and then writes, which is not atomic"
        return _two_conditional_puts(storage, conditional)
    finally:
        for path in (plain, conditional):
            _delete_quietly(storage, path)


def _two_conditional_puts(storage: CheckpointStorage, path: str) -> str:
    try:
        if not storage.put_if_absent(path, b"first"):
            return "it reports that an object exists under a new name"
        if storage.put_if_absent(path, b"second"):
            return "it accepted two conditional puts of one name"
    except StorageError as error:
        if isinstance(error.__cause__, PermanentFailure):
            return f"its answer to a conditional put is: {error.__cause__.reason}"
        raise
    return ""


def _delete_quietly(storage: CheckpointStorage, path: str) -> None:
    try:
        storage.delete(path)
    except StorageError as error:
        logger.debug("the probe object %s could not be deleted: %s", path, error)
