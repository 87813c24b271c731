"""A source and a sink of the user's own."""

from __future__ import annotations

import time
from typing import Any

from penstock.connectors.core.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import (
    NotingSplitReader,
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import RowBatch
from tests.hooks.act import Act


class Numbers(Source):
    """Numbers, some hundred a second, `count` in each split; 0 means without end."""

    def __init__(self, act: Act, count: int = 0) -> None:
        self.act = act
        self.count = count
        self.bounded = count > 0

    def create_enumerator(self) -> SplitEnumerator:
        self.act("create_enumerator")
        return Enumerator(self.act)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        self.act("create_reader")
        return Reader(self.act, self.count)


class Enumerator(SplitEnumerator):
    def __init__(self, act: Act) -> None:
        self.act = act

    @property
    def discovery_interval_ms(self) -> int | None:  # type: ignore[override]
        return 20 if self.act.hook == "discover" else None

    def discover(self) -> list[Split]:
        self.act("discover")
        return [Split(str(n), {}) for n in range(max(1, self.parallelism))]

    def snapshot(self) -> Any:
        self.act("enumerator_snapshot")
        return {"at": 1}

    def restore(self, state: Any) -> None:
        self.act("enumerator_restore")

    def on_split_finished(self, split_id: str) -> None:
        self.act("on_split_finished")

    def close(self) -> None:
        self.act("enumerator_close")


class Reader(SourceReader):
    def __init__(self, act: Act, count: int) -> None:
        self.act = act
        self.count = count

    def open_split(self, split: Split, position: Any) -> SplitReader:
        self.act("open_split")
        return Numbered(self.act, self.count, position)


class Numbered(NotingSplitReader):
    def __init__(self, act: Act, count: int, position: Any) -> None:
        super().__init__(position or 0)
        self.act = act
        self.count = count

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        self.act("read")
        time.sleep(0.002)
        if self.count and self._position >= self.count:
            self._finished = True
            return None
        self._position += 1
        return RowBatch([self._position])

    @property
    def position(self) -> Any:
        self.act("position")
        return self._position

    def close(self) -> None:
        self.act("split_close")


class Nowhere(Sink):
    def __init__(self, act: Act) -> None:
        self.act = act

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        self.act("create_writer")
        return Writer(self.act)

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        self.act("create_committer")
        return Commits(self.act)


class Writer(SinkWriter):
    def __init__(self, act: Act) -> None:
        self.act = act

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self.act("write")

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self.act("prepare_commit")
        return [{"piece": checkpoint_id}]

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        self.act("writer_snapshot")
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.act("notify_complete")

    def flush(self) -> None:
        self.act("flush")

    def finish(self) -> None:
        self.act("finish")

    def close(self) -> None:
        self.act("writer_close")


class Commits(Committer):
    def __init__(self, act: Act) -> None:
        self.act = act

    def commit(self, committables: list[Any]) -> None:
        self.act("commit")

    def abort(self, committables: list[Any]) -> None:
        self.act("abort")

    def discard_unreferenced(self, keep: list[Any], below_attempt: int | None = None) -> None:
        self.act("discard")
