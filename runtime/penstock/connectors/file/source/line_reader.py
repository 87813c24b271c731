"""The split reader of formats whose records are lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.connectors.file.source.blocks import BlockCutter
from penstock.connectors.file.source.byte_source import ByteSource, codec_of
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.formats.record_format import Decode, MalformedBlock, RejectedRecord, StreamFormat, isolate

if TYPE_CHECKING:
    from penstock.connectors.file.source.enumerator import FileRange
    from penstock.records.batch import Batch


class LineSplitReader(SplitReader):
    """Reads the records of a split block by block."""

    def __init__(
        self, format: StreamFormat, part: FileRange, source: ByteSource, files: OpenFiles, position: Any
    ) -> None:
        self._format = format
        self._path = part.path
        self._source = source
        self._files = files
        self._start = position
        self._cutter = BlockCutter(source, part, format, compressed=codec_of(part.path) is not None)
        self._decode: Decode | None = None
        self._rejected: list[RejectedRecord] = []

    def read(self, bounds: ReadBounds) -> Batch | None:
        self._files.use(self._source)
        decode = self._decode or self._open()
        block = self._cutter.next(bounds)
        batch: Batch | None = None
        if block is not None:
            try:
                batch = decode(block.data)
            except MalformedBlock:
                batch, rejected = isolate(self._format, decode, block, self._path)
                self._rejected += rejected
        self._rejected += self._cutter.rejected
        self._cutter.rejected.clear()
        if self._cutter.at_end:
            self._files.close(self._source)
        return batch

    def _open(self) -> Decode:
        self._cutter.begin(self._start)
        try:
            self._decode = self._format.decoder(self._cutter.header)
        except RecordFormatError as error:
            raise RecordFormatError(f"{error.message}, in {self._path!r}, line 1", remedy=error.remedy) from None
        return self._decode

    def take_rejected(self) -> list[Any]:
        rejected, self._rejected = self._rejected, []
        return rejected

    @property
    def position(self) -> Any:
        """[byte offset of the next record, its line or None]."""
        return self._start if self._decode is None else [self._cutter.offset, self._cutter.line]

    @property
    def finished(self) -> bool:
        return self._cutter.at_end

    def lag(self) -> int | None:
        """Bytes of the file not yet read."""
        return 0 if self._cutter.at_end else self._source.remaining(self._cutter.offset)

    def close(self) -> None:
        self._files.close(self._source)
