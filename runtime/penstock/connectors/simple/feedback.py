"""The feedback of an iteration: a sink at the end of the loop's body, and a source at its beginning.

The rows of an epoch travel to the JobManager with the epoch's acks. The rows become splits of the source, which the job reads in
the next epoch. A checkpoint contains the splits that are not read to their end, as with every source. So a barrier never waits
for feedback rows. A checkpoint has each row either in the state that the row changed, or in a split that is still to be
read.

Flink's own iterations put feedback edges into the graph, and a failure lost the rows on these edges. FLIP-15 proposed to log
them with the checkpoint. Flink 2.0 removed iterations.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.common.errors import InvalidJob, SourceError
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import (
    EnumeratorContext,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import RowBatch
from penstock.state.encoding.serializers import codec_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.files.state_files import StateFileReader
    from penstock.state.encoding.codec import Codec

INLINE_BYTES = 256 * 1024
"""Maximum bytes of the rows of one subtask and epoch in the manifest. Larger rows go into a file beside the checkpoints."""


@dataclass
class Loop:
    """The settings that both ends of an iteration share."""

    id: str
    type_info: Any = None
    """Type of the rows; None means builtin values."""
    is_closed: bool = False

    def codec(self) -> Codec:
        return codec_for(self.type_info, state="feedback stream", operator="iterate")


class _Piece(msgspec.Struct, array_like=True):
    """Rows that one call of `write` encoded."""

    code: int
    rows: bytes
    count: int
    timestamps: list[int] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Piece).decode
_decode_all = msgspec.msgpack.Decoder(list[bytes]).decode


class FeedbackSink(Sink):
    """A sink that sends rows back to the loop's beginning."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def validate(self) -> None:
        self.loop.codec()

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        assert context.operator is not None
        assert context.operator.results is not None
        return FeedbackWriter(self.loop, context.operator.results)


class FeedbackWriter(SinkWriter):
    def __init__(self, loop: Loop, results: Callable[[str, list[Any]], None]) -> None:
        self._id = loop.id
        self._codec = loop.codec()
        self._results = results

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if values:
            code, rows = self._codec.encode_column(self._codec.freeze(values))
            self._results(self._id, [_encode(_Piece(code, rows, len(values), timestamps))])


class FeedbackSource(Source):
    """A source of the rows that the loop sent back. It ends when all other sources have ended and no rows are left."""

    in_order = True
    excluded_from_watermarks = True

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def produced_type(self) -> Any:
        return self.loop.type_info

    def validate(self) -> None:
        if not self.loop.is_closed:
            raise InvalidJob(
                "an iteration is not closed: no stream feeds records back",
                remedy="call close_with(stream) on the result of iterate()",
            )

    def create_enumerator(self) -> FeedbackEnumerator:
        return FeedbackEnumerator()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return FeedbackReader(self.loop, context.object_store_options)


class FeedbackEnumerator(SplitEnumerator):
    """An enumerator that makes splits from the rows that the tasks send."""

    forgets_finished = True

    def __init__(self) -> None:
        self._context: EnumeratorContext | None = None
        self._count = 0
        self._is_over = False

    def start(self, context: EnumeratorContext) -> None:
        self._context = context

    def discover(self) -> list[Split]:
        return []

    def is_finished(self) -> bool:
        return self._is_over

    def end(self) -> None:
        """End the source. The loop contains no more rows."""
        self._is_over = True

    def split_of(self, pieces: list[bytes]) -> Split:
        """Return a split of the rows that a subtask sent in one epoch.

        Raises:
            OSError: the rows are too large for the manifest, and the storage refuses their file.
        """
        self._count += 1
        split_id = str(self._count)
        rows = sum(_decode(piece).count for piece in pieces)
        content = _encode(pieces)
        if len(content) <= INLINE_BYTES or self._context is None:
            inline = base64.b64encode(content).decode("ascii")
            return Split(split_id, {"rows": rows, "content": inline}, size=rows)
        from penstock.checkpoint.files.layout import new_shared_path

        path = new_shared_path()
        self._context.holds.hold_files(self._holder(split_id), [path])
        ref = self._context.storage.writer().write(content, path)
        file = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
        return Split(split_id, {"rows": rows}, size=rows, files=[file])

    def _holder(self, split_id: str) -> str:
        assert self._context is not None
        return f"feedback-{self._context.uid}-{split_id}"

    def on_split_finished(self, split_id: str) -> None:
        if self._context is not None:
            self._context.holds.release_files(self._holder(split_id))

    def snapshot(self) -> Any:
        return {"count": self._count}

    def restore(self, state: Any) -> None:
        self._count = state["count"] if state else 0


class FeedbackReader(SourceReader):
    def __init__(self, loop: Loop, object_store_options: dict[str, Any]) -> None:
        from penstock.checkpoint.store.retrying_store import Stores

        self._codec = loop.codec()
        self._stores = Stores(object_store_options)

    def open_split(self, split: Split, position: Any) -> SplitReader:
        from penstock.checkpoint.files.state_files import StateFileReader

        files = StateFileReader(self._stores, split.root)
        return FeedbackSplitReader(self._codec, split, files, 0 if position is None else int(position))

    def lag_of(self, split: Split, position: Any) -> int | None:
        return int(split.properties["rows"]) - (0 if position is None else int(position))


class FeedbackSplitReader(SplitReader):
    """A reader of one feedback split. Its position is the number of rows that it has returned."""

    def __init__(self, codec: Codec, split: Split, files: StateFileReader, position: int) -> None:
        self._codec = codec
        self._rows = int(split.properties["rows"])
        self._next = position
        self._pieces = [_decode(piece) for piece in _decode_all(_content(split, files))]
        self._piece = 0
        self._values: list[Any] | None = None
        skipped = position
        while self._piece < len(self._pieces) and skipped >= self._pieces[self._piece].count:
            skipped -= self._pieces[self._piece].count
            self._piece += 1
        self._at = skipped

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        if self.finished:
            return None
        piece = self._pieces[self._piece]
        if self._values is None:
            self._values = self._codec.decode_column(piece.code, piece.rows)
        most = max(1, min(bounds.max_records, piece.count * bounds.max_bytes // max(1, len(piece.rows))))
        end = min(piece.count, self._at + most)
        times = None if piece.timestamps is None else piece.timestamps[self._at : end]
        batch = RowBatch(self._values[self._at : end], times)
        self._next += end - self._at
        self._at = end
        if end == piece.count:
            self._piece, self._at, self._values = self._piece + 1, 0, None
        return batch

    @property
    def position(self) -> int:
        return self._next

    @property
    def finished(self) -> bool:
        return self._next >= self._rows

    def lag(self) -> int:
        return self._rows - self._next


def _content(split: Split, files: StateFileReader) -> bytes:
    if not split.files:
        return base64.b64decode(split.properties["content"])
    from penstock.state.files import FileRef

    file = split.files[0]
    try:
        return files.read(FileRef(file["path"], int(file["size"]), file["checksum"]))
    except FileNotFoundError as error:
        raise SourceError(
            f"the records of an iteration are not at the checkpoint's path: {error}",
            remedy="restore from another checkpoint, and do not delete files in the checkpoint folder manually",
        ) from error
