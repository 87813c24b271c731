"""The archive of a job: all that REST tells of it when it has ended, in one compressed file of a few kilobytes.

`<jobmanager.archive.fs.dir>/<job id>-<start, ms>.json.gz`, as Flink's JobManager writes one for its history server. It holds what the
seam between REST and the engine gives (`rest.facts`), so that the same pages are shown from it. Secrets are taken out before it is
written, and nothing of a job's state is in it. Fields that are unknown are ignored, and those that are missing have their defaults: archives outlive versions.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import math
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.store.object_store import ObjectMissing, base_name, join_url, normalize_url
from penstock.checkpoint.store.retrying_store import RetryPolicy, Stores
from penstock.common.errors import PenstockError, StorageError
from penstock.common.logs.redaction import Redaction, without_secrets
from penstock.metrics.reading import JobScope, SubtaskScope
from penstock.rest import facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.rest.gateway import ClusterGateway

FORMAT = 1
SUFFIX = ".json.gz"
MOST_BYTES = 64 * 2**20
"""Of an archive, unpacked; what is larger is none of ours."""

RETRY_S = 10.0
"""A job's end waits no longer for a storage that does not answer."""

logger = logging.getLogger(__name__)


class SubtaskNumbers(msgspec.Struct):
    """What a subtask counted and measured in its last attempt, by REST's names."""

    vertex: str
    subtask: int
    values: dict[str, float | str | bool | None]


class Plots(msgspec.Struct):
    """Samples of the last hour. None: not known, as JSON has no NaN."""

    times: list[int] = []
    series: dict[str, list[float | None]] = {}

    @classmethod
    def of(cls, history: facts.MetricHistory) -> Plots:
        return cls(
            list(history.times),
            {
                name: [value if math.isfinite(value) else None for value in values]
                for name, values in history.series.items()
            },
        )

    def history(self) -> facts.MetricHistory:
        return facts.MetricHistory(
            self.times,
            {name: [math.nan if value is None else value for value in values] for name, values in self.series.items()},
        )


class JobArchive(msgspec.Struct):
    """`checkpoints` and `details`: REST's shapes; the latter by checkpoint. `metrics`: the last hour, by vertex, of the job under the empty name."""

    job: facts.Job
    settings: facts.CheckpointSettings
    checkpoints: dict[str, Any]
    details: dict[int, dict[str, Any]] = {}
    past: list[facts.PastCheckpoint] = []
    metrics: dict[str, Plots] = {}
    connectors: facts.Connectors = facts.Connectors()
    subtasks: list[SubtaskNumbers] = []
    facts_of_job: dict[str, float | str | bool | None] = {}
    format: int = FORMAT


def archive_of(gateway: ClusterGateway, job_id: str) -> JobArchive:
    """Of a job that the gateway knows, without secrets."""
    job = gateway.job(job_id)
    statistics = gateway.checkpoints(job_id)
    details = {}
    for entry in statistics.history:
        try:
            details[entry.id] = gateway.checkpoint(job_id, entry.id).model_dump(mode="json", by_alias=True)
        except PenstockError:  # it has just left the history
            continue
    archive = JobArchive(
        job,
        gateway.checkpoint_settings(job_id),
        statistics.model_dump(mode="json", by_alias=True),
        details,
        list(gateway.insight.past_checkpoints(job_id)),
        {
            vertex: Plots.of(gateway.insight.metric_history(job_id, vertex or None))
            for vertex in ("", *(one.id for one in job.vertices))
        },
        gateway.insight.connectors(job_id),
        [
            SubtaskNumbers(
                vertex.id, scope.subtask, _plain(gateway.metrics.values(SubtaskScope(job_id, vertex.id, scope.subtask)))
            )
            for vertex in job.vertices
            for scope in gateway.metrics.subtasks(job_id, vertex.id)
        ],
        _plain(gateway.metrics.values(JobScope(job_id))),
    )
    return without_secrets_of_the_job(archive)


def without_secrets_of_the_job(archive: JobArchive) -> JobArchive:
    """What its configuration, or this process's environment, keeps secret is nowhere in it, neither there nor in texts of failures.

    Texts are cleaned one by one: as JSON a secret may be written otherwise, and a field's name or a number may be one by chance.
    """
    configuration = archive.job.configuration
    redaction = Redaction.of(configuration)
    hidden = msgspec.structs.replace(archive, job=_with_configuration(archive.job, without_secrets(configuration)))
    cleaned = _with_clean_texts(json.loads(msgspec.json.encode(hidden)), redaction)
    return decoded(msgspec.json.encode(cleaned))


def _with_clean_texts(value: Any, redaction: Redaction) -> Any:
    if isinstance(value, str):
        return redaction.clean(value)
    if isinstance(value, list):
        return [_with_clean_texts(item, redaction) for item in value]
    if isinstance(value, dict):
        return {key: _with_clean_texts(item, redaction) for key, item in value.items()}
    return value


def _with_configuration(job: facts.Job, configuration: Mapping[str, str]) -> facts.Job:
    return dataclasses.replace(job, configuration=configuration)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in values.items() if value is None or isinstance(value, int | float | str | bool)
    }


def decoded(data: bytes) -> JobArchive:
    """
    Raises:
        msgspec.DecodeError: it is no archive.
    """
    return msgspec.json.decode(data, type=JobArchive)


class Archives:
    """A folder of archives.

    Args:
        url: of the folder, on any storage that checkpoints can be on.
        options: for the storage driver; else the environment decides.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = normalize_url(url)
        self._store = Stores(options, RetryPolicy(retry_for=RETRY_S)).for_url(self.url)

    def write(self, archive: JobArchive) -> str:
        """Returns where it is.

        Raises:
            StorageError: it cannot be stored.
        """
        path = join_url(self.url, f"{archive.job.id}-{archive.job.start}{SUFFIX}")
        self._store.put(path, gzip.compress(msgspec.json.encode(archive), 6, mtime=0))
        return path

    def names(self) -> list[str]:
        """Of the archives that are there now, the newest first.

        Raises:
            StorageError: the folder cannot be listed.
        """
        found = [base_name(entry.url) for entry in self._store.list_objects(f"{self.url}/")]
        return sorted((name for name in found if name.endswith(SUFFIX)), key=_start_of, reverse=True)

    def read(self, name: str) -> JobArchive:
        """
        Raises:
            StorageError: it is not there, or no archive.
        """
        path = join_url(self.url, name)
        try:
            return decoded(_unpacked(self._store.get(path)))
        except ObjectMissing:
            raise StorageError(f"there is no {path}", remedy="it was removed; list the folder again") from None
        except (ValueError, zlib.error, msgspec.MsgspecError) as error:
            raise StorageError(f"{path} is no archive of a job: {error}", remedy="move it out of the folder") from error

    def all(self) -> Iterator[JobArchive]:
        """Those that can be read, the newest first; others are logged."""
        for name in self.names():
            try:
                yield self.read(name)
            except StorageError as error:
                logger.warning("%s", error.message)


def _start_of(name: str) -> int:
    digits = name.removesuffix(SUFFIX).rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(31)
    found = unpacking.decompress(data, MOST_BYTES)
    if unpacking.unconsumed_tail:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
    if not unpacking.eof:
        raise ValueError("it ends in the middle")
    return found
