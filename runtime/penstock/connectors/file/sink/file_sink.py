"""`FileSink`: writes files. When a checkpoint completes, its files become visible as a whole, exactly once.

    FileSink.for_row_format("s3://lake/alerts", JsonLinesEncoder()).build()
    FileSink.for_bulk_format("/data/means", ParquetWriterFactory(Mean))
        .with_bucket_assigner(lambda mean: f"station={mean.station}").build()

Files lie in buckets (directories), and a rolling policy decides when a file ends. A job without checkpoints makes nothing visible until it
ends.
"""

from __future__ import annotations

import os
import posixpath
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.function import clock_of
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.file.sink.bucket import BucketAssigner, FunctionBucketAssigner
from penstock.connectors.file.sink.committer import FileCommitter, committer_of
from penstock.connectors.file.sink.compact import Compaction, FileCompactor, FileCompactStrategy
from penstock.connectors.file.sink.local_store import LocalStore
from penstock.connectors.file.sink.object_store import ObjectStore
from penstock.connectors.file.sink.part_file import OutputFileConfig, PartNames, owner_of
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.connectors.file.sink.s3_store import S3Store
from penstock.connectors.file.sink.writer import FileWriter
from penstock.connectors.file.storage import (
    StorageOptions,
    explained,
    file_system,
    is_local,
    local_path,
    merge_options,
    protocol_of,
)
from penstock.connectors.formats.bulk import ColumnsWriterFactory
from penstock.connectors.formats.encode import COMPRESSIONS, CompressedEncoder, FunctionEncoder, suffix_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.typeinfo import TypeInformation
    from penstock.connectors.file.sink.recoverable import RecoverableStore


class FileSink(Sink):
    """A sink that writes records to files. `for_row_format` and `for_bulk_format` return its builders."""

    RowFormatBuilder: ClassVar[type[RowFileSinkBuilder]]
    BulkFormatBuilder: ClassVar[type[BulkFileSinkBuilder]]

    def __init__(
        self,
        base_path: str,
        format: Encoder | ColumnsWriterFactory,
        *,
        assigner: BucketAssigner,
        policy: RollingPolicy,
        config: OutputFileConfig,
        check_interval_ms: int,
        storage_options: StorageOptions | None,
        compaction: Compaction | None = None,
    ) -> None:
        self.compaction = compaction
        self.base_path = local_path(base_path) if is_local(base_path) else base_path.rstrip("/")
        self.format = format
        self.assigner = assigner
        self.policy = policy
        self.config = config
        self.check_interval_ms = check_interval_ms
        self.storage_options = storage_options

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder | Callable[[Any], str | bytes]) -> RowFileSinkBuilder:
        """Return a builder of a sink that writes one record after another. A function as encoder returns a record's line."""
        return RowFileSinkBuilder(base_path, checked_encoder(encoder))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory) -> BulkFileSinkBuilder:
        """Return a builder of a sink that writes files of a format such as Parquet."""
        return BulkFileSinkBuilder(base_path, checked_factory(writer_factory))

    def store(self, options: StorageOptions) -> RecoverableStore:
        """Return the store of parts for the file system of the base path."""
        merged = merge_options(options, self.storage_options)
        protocol = protocol_of(self.base_path)
        if is_local(self.base_path):
            return LocalStore()
        return S3Store(merged) if protocol in ("s3", "s3a", "s3n") else ObjectStore(self.base_path, merged)

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        names = PartNames(self.config, owner_of(context.job_id, context.uid), context.subtask, attempt=context.attempt)
        writer = FileWriter(
            self.store(context.object_store_options),
            self.format,
            self._directory_of,
            names,
            self.assigner,
            self.policy,
            clock_of(context.operator),
            check_interval_ms=self.check_interval_ms,
            compaction=self.compaction,
            monotonic_ms=None if context.operator is None else context.operator.clock.monotonic_ms,
        )
        writer.restore(restored, context.attempt)
        return writer

    def state_meaning(self) -> dict[str, Any]:
        is_s3 = protocol_of(self.base_path) in ("s3", "s3a", "s3n")
        storage = "local files" if is_local(self.base_path) else "S3" if is_s3 else "an object store"
        format = self.format
        name = format.format_name() if isinstance(format, Encoder) else type(format).__qualname__
        return {**super().state_meaning(), "storage": storage, "format": name}

    def _directory_of(self, bucket: str) -> str:
        return posixpath.join(self.base_path, bucket) if bucket else self.base_path

    def create_committer(
        self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = ""
    ) -> FileCommitter:
        return committer_of(self.store(object_store_options), self.base_path, job_id, uid)

    def with_object_store_options(self, options: dict[str, Any]) -> FileSink:
        return self._with(self.format, merge_options(options, self.storage_options))

    def with_input_type(self, type_info: TypeInformation) -> FileSink:
        if not isinstance(self.format, Encoder):
            return self
        return self._with(self.format.with_input_type(type_info), self.storage_options)

    def _with(self, format: Encoder | ColumnsWriterFactory, storage_options: StorageOptions | None) -> FileSink:
        return FileSink(
            self.base_path,
            format,
            assigner=self.assigner,
            policy=self.policy,
            config=self.config,
            check_interval_ms=self.check_interval_ms,
            storage_options=storage_options,
            compaction=self.compaction,
        )

    def validate(self) -> None:
        """Check the settings and the base path.

        Raises:
            InvalidJob: compaction is enabled, but parts on this store cannot stay open over a checkpoint.
            SinkError: a local base path is not writable, or an object store does not answer or has no such bucket.
        """
        is_s3 = protocol_of(self.base_path) in ("s3", "s3a", "s3n")
        if self.compaction is not None and not (is_s3 or is_local(self.base_path)):
            raise InvalidJob(
                f"files in {self.base_path!r} end at every checkpoint, so they cannot be merged",
                remedy="write to a local path or to S3, or leave out enable_compact",
            )
        if is_local(self.base_path):
            with explained(self.base_path, "create", SinkError):
                os.makedirs(self.base_path, exist_ok=True)
            if not os.access(self.base_path, os.W_OK | os.X_OK):
                raise SinkError(
                    f"cannot write to {self.base_path!r}: permission denied",
                    remedy="give the job's user the right to write there",
                )
            return
        with explained(self.base_path, "reach", SinkError):
            fs = file_system(self.base_path, self.storage_options)
            if is_s3:
                fs.call_s3("head_bucket", Bucket=self.base_path.partition("://")[2].partition("/")[0])


def checked_encoder(encoder: Encoder | Callable[[Any], str | bytes]) -> Encoder:
    """Return an encoder. A function from a record to its line is wrapped in an encoder."""
    return encoder if isinstance(encoder, Encoder) else FunctionEncoder(encoder)


def checked_factory(writer_factory: BulkWriterFactory) -> ColumnsWriterFactory:
    """Return the factory.

    Raises:
        InvalidJob: the argument is not a factory of writers.
    """
    if not isinstance(writer_factory, ColumnsWriterFactory):
        raise InvalidJob(
            f"{type(writer_factory).__name__} does not create bulk writers",
            remedy="use ParquetBulkWriters.for_row_type, or subclass penstock.connectors.formats.bulk.ColumnsWriterFactory",
        )
    return writer_factory


class BaseBuilder(ABC):
    """The common base class of PyFlink's two builders."""

    def __init__(self, base_path: str) -> None:
        self._base_path = base_path
        self._assigner: BucketAssigner = BucketAssigner.date_time_bucket_assigner()
        self._config = OutputFileConfig()
        self._check_interval_ms = 1000
        self._storage_options: StorageOptions | None = None
        self._compaction: Compaction | None = None

    @abstractmethod
    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Any:
        """Set the policy that ends a part and begins the next."""

    @abstractmethod
    def build(self) -> FileSink: ...

    def with_bucket_check_interval(self, interval: TimeLike) -> Any:
        """Set how often the age of parts is checked (timedelta or ms); 1 s by default."""
        self._check_interval_ms = as_millis(interval, "bucket check interval")
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner | Callable[[Any], str]) -> Any:
        """Set the assigner of directories, or a function from a record to a relative path. By default each hour has a directory, as in Flink."""
        if isinstance(bucket_assigner, BucketAssigner):
            self._assigner = bucket_assigner
        else:
            self._assigner = FunctionBucketAssigner(bucket_assigner)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> Any:
        self._config = output_file_config
        return self

    def with_storage_options(self, options: StorageOptions) -> Any:
        """Set arguments for the fsspec file system of the base path. They override the job's configuration."""
        self._storage_options = options
        return self

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Any:
        """Merge the files that the rolling policy makes. The strategy decides when a part ends."""
        self._compaction = Compaction(strategy, compactor.delimiter) if compactor.concatenates else None
        return self

    def disable_compact(self) -> Any:
        """Keep the files as the rolling policy makes them."""
        self._compaction = None
        return self


class RowFileSinkBuilder(BaseBuilder):
    def __init__(self, base_path: str, encoder: Encoder) -> None:
        super().__init__(base_path)
        self._encoder = encoder
        self._policy = RollingPolicy()
        self._compression: str | None = None

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> RowFileSinkBuilder:
        self._policy = rolling_policy
        return self

    def with_compression(self, compression: str) -> RowFileSinkBuilder:
        """Compress with "gzip" or "zstd"; file names get `.gz` or `.zst`."""
        self._compression = compression
        return self

    def build(self) -> FileSink:
        encoder, config = self._encoder, self._config
        if not config.part_suffix:
            config = OutputFileConfig(config.part_prefix, suffix_of(encoder))
        if self._compression is not None:
            if self._compaction is not None and self._compaction.delimiter:
                raise InvalidJob(
                    "compressed files cannot be merged with a delimiter between them",
                    remedy="use FileCompactor.concat_file_compactor() without a delimiter, or no compression",
                )
            encoder = CompressedEncoder(encoder, self._compression)
            config = OutputFileConfig(config.part_prefix, config.part_suffix + COMPRESSIONS[self._compression])
        return FileSink(
            self._base_path,
            encoder,
            assigner=self._assigner,
            policy=self._policy,
            config=config,
            check_interval_ms=self._check_interval_ms,
            storage_options=self._storage_options,
            compaction=self._compaction,
        )


class BulkFileSinkBuilder(BaseBuilder):
    """A builder for bulk formats. Their files end at every checkpoint, and earlier if the rolling policy requires it."""

    def __init__(self, base_path: str, factory: ColumnsWriterFactory) -> None:
        super().__init__(base_path)
        self._factory = factory
        self._policy = RollingPolicy(0, 0, 0, on_checkpoint=True)

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> BulkFileSinkBuilder:
        self._policy = rolling_policy.ending_at_checkpoints()
        return self

    def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Any:
        """Accept only a compactor that merges nothing.

        Raises:
            InvalidJob: the compactor would merge files.
        """
        super().enable_compact(strategy, compactor)
        if self._compaction is not None:
            raise InvalidJob(
                "files of a bulk format end at every checkpoint and cannot be merged",
                remedy="remove enable_compact. For larger files, set a longer checkpoint interval",
            )
        return self

    def build(self) -> FileSink:
        config = self._config
        if not config.part_suffix:
            config = OutputFileConfig(config.part_prefix, self._factory.suffix)
        return FileSink(
            self._base_path,
            self._factory,
            assigner=self._assigner,
            policy=self._policy,
            config=config,
            check_interval_ms=self._check_interval_ms,
            storage_options=self._storage_options,
        )


FileSink.BaseBuilder = BaseBuilder  # type: ignore[attr-defined]
FileSink.RowFormatBuilder = RowFileSinkBuilder
FileSink.BulkFormatBuilder = BulkFileSinkBuilder
