"""Settings of the sinks of tables in a lake. A committer needs only these settings and no other part of the sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.common.errors import InvalidJob
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.connectors.lakehouse.files import FILE_BYTES
from penstock.connectors.lakehouse.keys import check_key

if TYPE_CHECKING:
    from penstock.connectors.file.storage import StorageOptions
    from penstock.connectors.lakehouse.fields import Fit


class LakehouseSinkOptions(TypedDict, total=False):
    """Keyword arguments of the sinks of all table formats."""

    partition_by: Sequence[str]
    """The partition columns of a table that the sink creates."""
    create: bool
    """Create the table if it does not exist. Default: False."""
    add_columns: bool
    """Add fields that the table does not have as columns when the job starts. Default: False."""
    key: Sequence[str]
    """The columns by which a row replaces an existing row. Table columns that records do not have keep their values. By default there is
    no key, and every row is added."""
    deletes: bool
    """Records are `Row`s of a changelog: DELETE removes the row with this key, UPDATE_BEFORE is skipped. All rows of a key must go to
    the same subtask, in order (`key_by`). Default: False."""
    file_bytes: int
    """A file ends at this size, and at every checkpoint. Default: 128 MiB."""


class LakehouseSinkSettings(ABC):
    """The settings that the sinks of all table formats share.

    Args:
        name: how errors name the table.
    """

    def __init__(
        self,
        name: str,
        fields: Declaration,
        *,
        partition_by: Sequence[str] = (),
        create: bool = False,
        add_columns: bool = False,
        key: Sequence[str] = (),
        deletes: bool = False,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.name = name
        self.shape = RecordShape.of(fields)
        assert self.shape.schema
        self.partition_by = tuple(partition_by)
        self.create = create
        self.add_columns = add_columns
        self.key = check_key(key, self.shape.schema, deletes=deletes)
        self.deletes = deletes
        self.file_bytes = file_bytes
        self._store_options: StorageOptions = {}
        names = self.shape.schema.names
        if any(name not in names for name in self.partition_by):
            raise InvalidJob(
                f"partition_by={list(self.partition_by)} must name fields of the records, which are {', '.join(names)}",
                remedy="correct the names",
            )

    def store_options(self, options: StorageOptions) -> StorageOptions:
        """Return the job's object store settings. The sink's own settings override them."""
        return {**options, **self._store_options}

    @abstractmethod
    def exists(self, options: StorageOptions) -> bool:
        """Return whether the table exists. An unreachable table is a SinkError."""

    @abstractmethod
    def open_table(self, options: StorageOptions) -> Any:
        """Return the table. A missing or unreachable table is a SinkError."""

    @abstractmethod
    def new_schema(self) -> Any:
        """Return the schema of a new table. A field whose type the format does not have is an InvalidJob."""

    @abstractmethod
    def fit_to(self, table: Any, *, adds_columns: bool = False) -> Fit:
        """Return the columns that the sink writes into the table in its current state.

        Raises:
            InvalidJob: the job's fields do not fit, or the table cannot be written by this sink.
        """
