"""Settings of the sinks that write rows into tables. Writers and committers need only these settings and no other part of the sink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.delivery_guarantee import DeliveryGuarantee
from penstock.connectors.formats.shape import Declaration, RecordShape

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.connectors.tables.server import TableServer


class TableSinkOptions(TypedDict, total=False):
    """Keyword arguments of the sinks of all databases."""

    key: Sequence[str]
    """Columns by which a new row replaces an existing row. The table needs a primary key or unique index of exactly
    these columns. By default, no columns are set and rows are appended."""
    deletes: bool
    """Whether records are `Row`s of a changelog. DELETE removes the row with its key, and UPDATE_BEFORE is skipped. Rows with the same
    key must reach the same subtask, in order (`key_by`). Default: False."""
    guarantee: DeliveryGuarantee
    """EXACTLY_ONCE, the default, or AT_LEAST_ONCE."""
    batch_rows: int
    """Number of buffered rows at which a sink for at least once writes them. Default: 5,000."""
    batch_time: TimeLike
    """Time after which a sink for at least once writes buffered rows. It also writes them at every checkpoint. Default: 1 s."""


class TableSinkSettings(ABC):
    """The settings that the sinks of all databases share.

    Raises:
        InvalidJob: the settings contradict each other.
    """

    server: TableServer

    def __init__(
        self,
        table: str,
        fields: Declaration,
        *,
        key: Sequence[str] = (),
        deletes: bool = False,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
        batch_rows: int = 5_000,
        batch_time: TimeLike = 1_000,
    ) -> None:
        sink = type(self).__name__
        if guarantee not in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
            raise InvalidJob(
                f"{sink} does not support the delivery guarantee {guarantee}",
                remedy="use EXACTLY_ONCE or AT_LEAST_ONCE",
            )
        self.table = table
        self.shape = RecordShape.of(fields)
        self.key = tuple(key)
        self.deletes = deletes
        if deletes and not key:
            raise InvalidJob("deletes=True needs a key", remedy="name the columns that identify a row: key=[…]")
        self.guarantee = guarantee
        self.batch_rows = batch_rows
        self.batch_ms = as_millis(batch_time, "batch_time")
        strange = [name for name in self.key if name not in self.shape.names]
        if strange:
            raise InvalidJob(
                f"key={list(key)} names no fields of the records, which are {', '.join(self.shape.names)}",
                remedy="name fields of the records",
            )

    @property
    def is_exactly_once(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @abstractmethod
    def prepared(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns in the form in which a subtask buffers them.

        Raises:
            RecordFormatError: the database cannot store a value.
        """
