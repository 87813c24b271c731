"""The sources that read tables in a lake: one version, or also all later appends."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypedDict

from penstock.connectors.core.source import Source, SourceReader, Split, SplitEnumerator, SplitReader
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.changes import OnChange, Reading, TableChanges, TableEnumerator
from penstock.connectors.lakehouse.reader import ColumnNames, TableFileReader, check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.common.time import TimeLike
    from penstock.connectors.file.storage import StorageOptions


class LakehouseSourceOptions(TypedDict, total=False):
    """Keyword arguments of the sources of all table formats."""

    record: str | None
    """Another form for the same fields: "tuple", "dict" or "row"."""
    follow: TimeLike | None
    """The interval at which an unbounded source looks for new commits. The default is a bounded source."""
    start: Any
    """Start of a source with `follow`: "snapshot" (all rows, then new rows; the default), "latest", or a version after
    which to start."""
    on_change: OnChange
    """How to treat a commit that deletes or changes rows: "fail" raises an error (the default), and "skip" skips the commit."""


class LakehouseSource(Source):
    """Base class of the sources of all table formats.

    Args:
        name: how errors name the table.
        version: the version to read. None means the newest version at the start.
    """

    in_order = True

    def __init__(
        self,
        name: str,
        fields: Declaration,
        version: int | None,
        *,
        record: str | None = None,
        follow: TimeLike | None = None,
        start: Any = "snapshot",
        on_change: OnChange = "fail",
    ) -> None:
        self.name = name
        self.shape = None if fields is None else RecordShape.of(fields, record)
        self.record = record
        self.reading = Reading.of(version, follow, start, on_change)
        self.bounded = self.reading.follow_ms is None
        self._store_options: StorageOptions = {}

    @abstractmethod
    def open_table(self, options: StorageOptions) -> Any:
        """Return the table. A missing or unreachable table is a SourceError."""

    @abstractmethod
    def readable_columns(self, table: Any) -> pa.Schema:
        """Return the columns of the table. A table whose files cannot be read is a SourceError."""

    @abstractmethod
    def _changes(self) -> TableChanges:
        """Return the table for the enumerator."""

    def with_object_store_options(self, options: dict[str, Any]) -> Self:
        other = copy(self)
        other._store_options = dict(options)
        return other

    def store_options(self, options: StorageOptions) -> StorageOptions:
        """Return the job's object store settings. The source's own settings override them."""
        return {**options, **self._store_options}

    def shape_of(self, table: Any) -> RecordShape:
        """Return the shape of the records.

        Raises:
            SourceError: the table does not have the columns, or the source cannot read its files.
        """
        columns = self.readable_columns(table)
        if self.shape is None:
            return RecordShape.of(columns, self.record)
        check_columns(self.shape, columns, self.name)
        return self.shape

    def create_enumerator(self) -> SplitEnumerator:
        return TableEnumerator(self._changes(), self.reading)

    def produced_type(self) -> Any:
        return None if self.shape is None else self.shape.produced_type()

    def validate(self) -> None:
        """Check before the job starts that the table and the version can be read.

        Raises:
            SourceError: the table or the version does not exist, or is unreachable or unreadable.
        """
        self.shape_of(self.open_table(self.store_options({})))
        if self.reading.start == "snapshot":
            self._changes().snapshot(self.reading.version)


class LakehouseReader(SourceReader):
    """The reader of a subtask. It opens the table once, to get the table's columns."""

    def __init__(self, source: LakehouseSource, options: StorageOptions) -> None:
        self._source = source
        self._options = source.store_options(options)
        self._files = OpenFiles()
        self._table: Any = None

    @abstractmethod
    def _columns(self, shape: RecordShape) -> tuple[pa.Schema, ColumnNames]:
        """Return the columns with their types, and the function that finds them in a file."""

    @abstractmethod
    def _constant(self, value: Any, kind: pa.DataType) -> Any:
        """Convert a partition value of a split to the column's type."""

    def _path(self, path: str) -> str:
        """Return the full path of a split's file."""
        return path

    @abstractmethod
    def _open_file(self, path: str) -> Any:
        """Return a seekable binary file."""

    def open_split(self, split: Split, position: Any) -> SplitReader:
        if self._table is None:
            table = self._source.open_table(self._options)
            self._shape = self._source.shape_of(table)
            self._table = table
            self._schema, self._names = self._columns(self._shape)
        constants = {
            name: self._constant(value, self._schema.field(name).type)
            for name, value in split.properties["partition"].items()
            if value is not None and self._schema.get_field_index(name) >= 0
        }
        path = self._path(split.properties["path"])
        open_file = lambda: self._open_file(path)  # noqa: E731
        return TableFileReader(path, open_file, self._shape, self._names, constants, self._files, position)
