"""A table in a lake for its committer, which may create the table and add columns."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import SinkError
from penstock.connectors.lakehouse.commits import TableLog

if TYPE_CHECKING:
    from penstock.connectors.file.storage import StorageOptions
    from penstock.connectors.lakehouse.settings import LakehouseSinkSettings

logger = logging.getLogger(__name__)


class LakehouseLog(TableLog):
    """Base class of the tables of all formats."""

    def __init__(self, sink: LakehouseSinkSettings, options: StorageOptions) -> None:
        self.name = sink.name
        self._sink = sink
        self._options = options
        self._table: Any = None

    @abstractmethod
    def _create(self) -> None:
        """Create the table, unless another process creates it at the same time.

        Raises:
            SinkError: the table cannot be created.
        """

    @abstractmethod
    def _add(self, table: Any, columns: pa.Schema) -> None:
        """Add columns to the table."""

    def prepare(self) -> None:
        """Create the table, or add columns to it, if the sink is configured to do so.

        Raises:
            SinkError: the table cannot be created or changed.
        """
        if self._sink.create and not self._sink.exists(self._options):
            self._create()
        if self._sink.add_columns:
            self._add_columns()

    def _add_columns(self) -> None:
        """Add the missing columns. Try again after an error, because another process may add the same columns."""
        for is_last in (False, True):
            table = self._sink.open_table(self._options)
            new = self._sink.fit_to(table, adds_columns=True).new
            if not new:
                return
            names = ", ".join(field.name for field in new)
            try:
                self._add(table, pa.schema(list(new)))
                logger.info("columns %s are added to table %r", names, self.name)
                return
            except Exception as error:
                if is_last:
                    raise SinkError(
                        f"columns {names} cannot be added to {self.name!r}: {error}",
                        remedy="add them by hand, or stop other processes that change the table at the same time",
                    ) from error
