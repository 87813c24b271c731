"""`FileSource`: reads a static set of files, or all files that appear in a directory.

    FileSource.for_record_stream_format(JsonLinesFormat(Reading), "s3://lake/readings/").build()
    FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/var/log/app/*.log.gz")
        .monitor_continuously(timedelta(seconds=10)).build()

Each file is a separate split and is read in order. `split_size` cuts large files into ranges, which subtasks read in
parallel. Each split has its own watermark, so the event time of one file may be days behind that of another file.
"""

from __future__ import annotations

from typing import Any

from penstock.common.errors import InvalidJob, SourceError
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import ReaderContext, Source, SourceReader, Split, SplitReader
from penstock.connectors.file.source.byte_source import bytes_of, check_unchanged, codec_of
from penstock.connectors.file.source.enumerator import FileEnumerator, FileRange
from penstock.connectors.file.source.lazy_reader import LazyReader
from penstock.connectors.file.source.line_reader import LineSplitReader
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.file.storage import Storage, StorageOptions, explained, is_local, local_path, merge_options
from penstock.connectors.formats.record_format import BulkFormat, RecordFormat, StreamFormat


class FileSource(Source):
    """A source of the records of files. `for_record_stream_format` and `for_bulk_file_format` return its builder."""

    counts_lag_in_records = False

    def __init__(
        self,
        format: RecordFormat,
        paths: tuple[str, ...],
        *,
        discovery_interval_ms: int | None = None,
        split_size: int | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        if not paths:
            raise InvalidJob("a file source needs at least one path", remedy="pass a file, a directory or a pattern")
        if split_size is not None and not format.splittable:
            raise InvalidJob(
                f"{type(format).__name__} cannot be read from the middle of a file, so split_size cannot be set",
                remedy="remove split_size, or turn quotes off (CSV)",
            )
        self.format = format
        self.paths = tuple(local_path(str(path)) if is_local(str(path)) else str(path) for path in paths)
        self.discovery_interval_ms = discovery_interval_ms
        self.split_size = split_size
        self.storage_options = storage_options
        self.bounded = discovery_interval_ms is None
        self.in_order = not self.bounded

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder of a source whose records are lines.
        >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/data/in").build()
        >>> source.bounded, source.produced_type()
        (True, <class 'str'>)
        """
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder of a source for files that are read as a whole, such as Parquet."""
        return FileSourceBuilder(bulk_format, paths)

    def with_object_store_options(self, options: dict[str, Any]) -> FileSource:
        return FileSource(
            self.format,
            self.paths,
            discovery_interval_ms=self.discovery_interval_ms,
            split_size=self.split_size,
            storage_options=merge_options(options, self.storage_options),
        )

    def create_enumerator(self) -> FileEnumerator:
        return FileEnumerator(self.paths, self.storage_options or {}, self.discovery_interval_ms, self.split_size)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return FileSourceReader(self.format, merge_options(context.object_store_options, self.storage_options))

    def produced_type(self) -> Any:
        return self.format.produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return (self.format.error_tag,) if self.format.rejects else ()

    def validate(self) -> None:
        """List the paths.

        Raises:
            SourceError: a path does not exist or is not readable, or a static set has no files.
        """
        enumerator = self.create_enumerator()
        enumerator.discover()


class FileSourceReader(SourceReader):
    """A reader that opens files. The splits of a subtask share file systems and handles."""

    def __init__(self, format: RecordFormat, options: StorageOptions) -> None:
        self._format = format
        self._options = options
        self._storages: dict[str, Storage] = {}
        self._files = OpenFiles()

    def open_split(self, split: Split, position: Any) -> SplitReader:
        part = FileRange.of(split)
        root = part.path.partition("://")[0]
        storage = self._storages.get(root)
        if storage is None:
            storage = self._storages[root] = Storage(part.path, self._options)
        if isinstance(self._format, StreamFormat):
            return LineSplitReader(self._format, part, bytes_of(part, storage), self._files, position)
        if not isinstance(self._format, BulkFormat):
            raise InvalidJob(f"{self._format!r} is neither a StreamFormat nor a BulkFormat")
        if codec_of(part.path) is not None:
            raise SourceError(
                f"{part.path!r} is compressed as a whole, which {type(self._format).__name__} cannot read",
                remedy="decompress it; Parquet compresses inside the file",
            )
        return BulkFileReader(self._format, part, storage, self._files, position)

    def lag_of(self, split: Split, position: Any) -> int | None:
        part = FileRange.of(split)
        if not isinstance(self._format, StreamFormat) or codec_of(part.path) is not None:
            return None
        return max(0, part.size - (part.start if position is None else int(position[0])))


class BulkFileReader(LazyReader):
    """A reader of a range of a file in a bulk format."""

    def __init__(self, format: BulkFormat, part: FileRange, storage: Storage, files: OpenFiles, position: Any) -> None:
        super().__init__(files, position)
        self._format = format
        self._part = part
        self._storage = storage

    def _opened(self) -> SplitReader:
        part = self._part
        check_unchanged(part, self._storage)
        self._file = self._storage.open(part.path)
        with explained(part.path, "read"):
            return self._format.open(part.path, self._file, part.start, part.end, self._position)


class FileSourceBuilder:
    """PyFlink's builder of a FileSource, with the settings that Penstock adds."""

    def __init__(self, format: RecordFormat, paths: tuple[str, ...]) -> None:
        self._format = format
        self._paths = paths
        self._interval_ms: int | None = None
        self._split_size: int | None = None
        self._storage_options: StorageOptions | None = None

    def monitor_continuously(self, discovery_interval: TimeLike) -> FileSourceBuilder:
        """List the paths at this interval. The source does not end."""
        self._interval_ms = as_millis(discovery_interval, "discovery_interval")
        if self._interval_ms <= 0:
            raise InvalidJob(
                f"the discovery interval must be positive, got {self._interval_ms} ms",
                remedy="pass for example timedelta(minutes=1)",
            )
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """List the paths once, read the files that exist, and end. This is the default."""
        self._interval_ms = None
        return self

    def split_size(self, size: int | None) -> FileSourceBuilder:
        """Cut files into ranges of about `size` bytes. The source then keeps the order of records only within a range."""
        self._split_size = size
        return self

    def storage_options(self, options: StorageOptions) -> FileSourceBuilder:
        """Set arguments for the fsspec file system of the paths. They override the job's configuration."""
        self._storage_options = options
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        self._split_size = file_enumerator.split_size if self._format.splittable else None
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Do nothing; the method exists in PyFlink. The JobManager balances splits by size."""
        return self

    def build(self) -> FileSource:
        return FileSource(
            self._format,
            self._paths,
            discovery_interval_ms=self._interval_ms,
            split_size=self._split_size,
            storage_options=self._storage_options,
        )


class FileEnumeratorProvider:
    """The rule by which files become splits (PyFlink's names)."""

    def __init__(self, split_size: int | None) -> None:
        self.split_size = split_size

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return a provider that cuts large files into ranges of 64 MiB if the format can be read from the middle."""
        return FileEnumeratorProvider(64 << 20)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return a provider with one split per file."""
        return FileEnumeratorProvider(None)


class FileSplitAssignerProvider:
    """A provider of the split assigner. It has no effect, because the JobManager assigns splits."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        return FileSplitAssignerProvider()
