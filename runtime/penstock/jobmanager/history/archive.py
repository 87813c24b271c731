"""The archive of a job: the REST data of an ended job, in one compressed file of a few kilobytes.

The file is `<jobmanager.archive.fs.dir>/<job id>-<start, ms>.json.gz`. Flink's JobManager writes a similar file for its history server.
The file contains the data of the interface between REST and the engine (`rest.facts`), so the dashboard's pages can show it. Secrets are
removed before the file is written, and it contains no state of the job. Archives outlive versions, so a reader ignores unknown fields, and
missing fields have their defaults.

Any program that can write to the folder can choose names and contents, so both are checked before use. A hostile archive must not prevent
the history server from showing the other archives.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import logging
import math
import re
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.checkpoint.store.object_store import ObjectMissing, base_name, join_url, normalize_url
from penstock.checkpoint.store.retrying_store import RetryPolicy, Stores
from penstock.common.errors import PenstockError, StorageError
from penstock.common.folders.storage_names import is_segment
from penstock.common.logs.redaction import Redaction, without_secrets
from penstock.metrics.reading import JobScope, SubtaskScope
from penstock.rest import facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.rest.gateway import ClusterGateway

FORMAT = 1
SUFFIX = ".json.gz"
MAX_BYTES = 64 * 2**20
"""Maximum size of an unpacked archive, in bytes. A larger file is not an archive of Penstock."""
MAX_PACKED_BYTES = 16 * 2**20
MAX_VALUES = 1_000_000
"""Maximum number of values in an archive. A value takes at least two bytes in JSON. Decoding it takes up to 100 bytes and 1 µs."""
VALUE_BYTES = 100
MAX_PARALLELISM = 2**15

RETRY_S = 10.0
"""Time in seconds for which the end of a job waits for a storage that does not respond."""

_OPTIONAL: tuple[tuple[str, Any], ...] = (("subtasks", []), ("metrics", {}), ("details", {}), ("", None))
"""Parts that `Archives.write` replaces in a large archive, in this order, each with its empty value. The last entry has no name: it only
causes a last check of the size.
"""
_REMEDY = "move the file out of the folder"
_START = re.compile(rf"-([0-9]{{1,19}}){re.escape(SUFFIX)}\Z")

logger = logging.getLogger(__name__)


class SubtaskNumbers(msgspec.Struct):
    """Counters and measurements of a subtask in its last attempt, under REST's names."""

    vertex: str
    subtask: int
    values: dict[str, float | str | bool | None]


class Plots(msgspec.Struct):
    """Samples of the last hour. None means unknown, because JSON has no NaN."""

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
    """Archive of a job. `checkpoints` and `details` have REST's shapes, and `details` has checkpoint ids as keys.
    `metrics` contains the last hour by vertex, with the job's own metrics under the empty name.
    """

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
    """Return the archive of a job that the gateway knows, without secrets."""
    job = gateway.job(job_id)
    statistics = gateway.checkpoints(job_id)
    details = {}
    for entry in statistics.history:
        try:
            details[entry.id] = gateway.checkpoint(job_id, entry.id).model_dump(mode="json", by_alias=True)
        except PenstockError:  # the checkpoint has just left the history
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
    return without_job_secrets(archive)


def without_job_secrets(archive: JobArchive) -> JobArchive:
    """Remove the secrets of the job's configuration and of this process's environment from all values, including texts of failures.

    Texts are cleaned one by one. JSON may encode a secret differently, and a field name or a number may equal a secret by chance.
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
    """Decode an archive, and check it, so that the dashboard can show all its pages.

    Raises:
        ValueError: the data is not an archive, or contains an impossible value.
        RecursionError: the data is nested too deeply.
    """
    archive = msgspec.json.decode(data, type=JobArchive)
    _refuse_impossible_values(archive)
    return archive


def values_of(data: bytes) -> int:
    """Return an upper bound of the number of values in JSON, from its bytes alone."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _refuse_impossible_values(archive: JobArchive) -> None:
    """Refuse values that would break a page, such as a job id that is not a plain name.

    Raises:
        ValueError: a value has the right type but is not possible.
    """
    from penstock.rest import models  # REST's shapes, whose import would slow down a small job

    job = archive.job
    if not is_segment(job.id):
        raise ValueError("its job id is not a plain name")
    widths = [(job.parallelism, job.max_parallelism), *((one.parallelism, one.max_parallelism) for one in job.vertices)]
    if any(not 0 < width <= MAX_PARALLELISM for pair in widths for width in pair):
        raise ValueError(f"it has a parallelism that is not between 1 and {MAX_PARALLELISM}")
    models.CheckpointingStatistics.model_validate(archive.checkpoints)
    for details in archive.details.values():
        models.CheckpointStatistics.model_validate(details)
    _refuse_impossible_numbers(msgspec.to_builtins(archive))


def _refuse_impossible_numbers(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_impossible_numbers(key)
            _refuse_impossible_numbers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_impossible_numbers(item)
    elif isinstance(value, int) and abs(value) > 2**63:
        raise ValueError("it has an integer of more than 64 bits")


class ArchiveTooLarge(StorageError):
    """Error for an archive that has more bytes than the reader currently allows."""


class _TooLarge(ValueError):
    pass


class SizedArchive(NamedTuple):
    """Archive, and an upper bound of its memory in bytes."""

    archive: JobArchive
    size: int


class Archives:
    """Folder of archives.

    Args:
        url: URL of the folder, on any storage that supports checkpoints.
        options: options of the storage driver. Default: from the environment.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = normalize_url(url)
        self._store = Stores(options, RetryPolicy(retry_for=RETRY_S)).for_url(self.url)

    def write(self, archive: JobArchive) -> str:
        """Store an archive and return its URL. The archive of a very large job is stored without its largest parts.

        Raises:
            StorageError: the archive cannot be stored.
        """
        path = join_url(self.url, f"{archive.job.id}-{archive.job.start}{SUFFIX}")
        self._store.put(path, _packed(archive))
        return path

    def names(self) -> list[str]:
        """Return the names of the files that have the suffix of an archive, the newest first. `read` checks them.

        Raises:
            StorageError: the folder cannot be listed.
        """
        found = {base_name(entry.url) for entry in self._store.list_objects(f"{self.url}/")}
        return sorted((name for name in found if name.endswith(SUFFIX)), key=start_of, reverse=True)

    def read(self, name: str) -> JobArchive:
        """Read one archive, within the limits of its size.

        Raises:
            StorageError: the file does not exist, is not an archive, or does not have the name of an archive.
        """
        return self.read_sized(name).archive

    def read_sized(self, name: str, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES) -> SizedArchive:
        """Read one archive and return it with its memory.

        Raises:
            ArchiveTooLarge: the archive has more than `max_bytes` unpacked, or more than `max_values` values. Only the data up to the limit
                was unpacked, and nothing was decoded.
            StorageError: as in `read`.
        """
        if not is_segment(name):
            raise StorageError(f"{name!r:.200} in {self.url} is not the name of an archive", remedy=_REMEDY)
        path = join_url(self.url, name)
        try:
            max_packed_bytes = min(MAX_PACKED_BYTES, max_bytes)
            data = _unpacked(self._store.get_range(path, 0, max_packed_bytes + 1), max_packed_bytes, max_bytes)
            count = values_of(data)
            if count > max_values:
                raise _TooLarge(f"it has up to {count} values, and an archive has at most {max_values}")
            return SizedArchive(decoded(data), len(data) + VALUE_BYTES * count)
        except ObjectMissing:
            raise StorageError(
                f"{path} does not exist", remedy="the archive was removed. List the folder again"
            ) from None
        except _TooLarge as error:
            raise ArchiveTooLarge(f"{path} is not an archive of a job: {error}", remedy=_REMEDY) from error
        except (ValueError, RecursionError, zlib.error, msgspec.MsgspecError) as error:
            raise StorageError(f"{path} is not an archive of a job: {error}", remedy=_REMEDY) from error

    def all(self) -> Iterator[JobArchive]:
        """Yield the readable archives, the newest first. Log a warning for each other archive."""
        for name in self.names():
            try:
                yield self.read(name)
            except StorageError as error:
                logger.warning("%s", error.message)


def start_of(name: str) -> int:
    found = _START.search(name)
    return int(found[1]) if found else 0


def _packed(archive: JobArchive) -> bytes:
    """Return the bytes of an archive. Leave out optional parts, one by one, until the archive is within the limits of `Archives.read`."""
    left_out: list[str] = []
    for part, nothing in _OPTIONAL:
        data = msgspec.json.encode(archive)
        if len(data) <= MAX_BYTES and values_of(data) <= MAX_VALUES:
            packed = gzip.compress(data, 6, mtime=0)
            if len(packed) <= MAX_PACKED_BYTES:
                break
        if part:
            left_out.append(part)
            archive = msgspec.structs.replace(archive, **{part: nothing})
    else:
        packed = gzip.compress(data, 6, mtime=0)
        logger.warning("the archive of job %s is too large for the history server", archive.job.id)
    if left_out:
        logger.warning("the archive of job %s is large, so it has no %s", archive.job.id, ", ".join(left_out))
    return packed


def _unpacked(data: bytes, max_packed_bytes: int, max_bytes: int) -> bytes:
    if len(data) > max_packed_bytes:
        raise _TooLarge(f"it is larger than {max_packed_bytes >> 20} MiB")
    unpacking = zlib.decompressobj(31)
    found = unpacking.decompress(data, max_bytes)
    if unpacking.unconsumed_tail:
        raise _TooLarge(f"it is larger than {max_bytes >> 20} MiB")
    if not unpacking.eof:
        raise ValueError("it is truncated")
    return found
