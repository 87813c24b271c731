"""`StreamingFileSink`: the name of `FileSink` in older programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.file.sink.file_sink import (
    BulkFileSinkBuilder,
    FileSink,
    RowFileSinkBuilder,
    checked_encoder,
    checked_factory,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.serialization import BulkWriterFactory, Encoder
    from penstock.connectors.file.sink.rolling import RollingPolicy


class StreamingFileSink(FileSink):
    """A `FileSink` whose builders call the argument of `with_rolling_policy` simply `policy`."""

    class DefaultRowFormatBuilder(RowFileSinkBuilder):
        """A builder for row formats."""

        def with_rolling_policy(self, policy: RollingPolicy) -> Any:
            return super().with_rolling_policy(policy)

    class DefaultBulkFormatBuilder(BulkFileSinkBuilder):
        """A builder for bulk formats."""

        def with_rolling_policy(self, policy: RollingPolicy) -> Any:
            return super().with_rolling_policy(policy)

    @staticmethod
    def for_row_format(
        base_path: str, encoder: Encoder | Callable[[Any], str | bytes]
    ) -> StreamingFileSink.DefaultRowFormatBuilder:
        return StreamingFileSink.DefaultRowFormatBuilder(base_path, checked_encoder(encoder))

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        return StreamingFileSink.DefaultBulkFormatBuilder(base_path, checked_factory(writer_factory))
