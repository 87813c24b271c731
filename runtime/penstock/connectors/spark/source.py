"""`from_spark`: the rows of a DataFrame as the splits of a source.

A micro-batch is staged and then assigned, with one split per file. The source requests the next batch when all files
of this batch were read. So batches enter in order, and a slow job slows the query down. A checkpoint has the unfinished splits
with their files and positions. It also has the query's log at the last assigned batch. After a failure, the rows of
that batch come from its files in the same order. The query creates every later batch again from the same offsets.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.layout import SHARED
from penstock.checkpoint.files.state_files import StateFileReader
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import InvalidJob, PenstockError
from penstock.connectors.core.source import (
    EnumeratorContext,
    ReaderContext,
    Source,
    SourceReader,
    SparkAccess,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.spark import query_log
from penstock.connectors.spark.arrow_map import map_in_arrow
from penstock.connectors.spark.feed import Feed, QueryFeed, TableFeed
from penstock.connectors.spark.staged import FILES_SCHEMA, StagedReader, StageRows

if TYPE_CHECKING:
    from collections.abc import Callable

FILES_IN_MEMORY = 4
"""Number of files in memory per subtask."""
LOOK_MS = 20
"""Interval in ms at which the JobMaster checks for the next batch."""


class SparkSource(Source):
    """A source of a DataFrame's rows, as `Row`s.

    Args:
        df_factory: a function that the JobManager calls with its SparkSession. It returns the DataFrame, streaming or not.
        bounded: whether a streaming DataFrame ends after the data that exists at the start. A DataFrame that does not stream always
            ends.
    """

    needs_spark = True
    in_order = True

    def __init__(self, df_factory: Callable[[Any], Any], *, bounded: bool = False) -> None:
        self.df_factory = df_factory
        self.bounded = bounded

    def data_frame(self, session: Any) -> Any:
        """Return the DataFrame.

        Raises:
            InvalidJob: the factory raised an exception, or returned something other than a DataFrame.
        """
        try:
            frame = self.df_factory(session)
        except PenstockError:
            raise
        except Exception as error:
            raise InvalidJob(
                f"the function of from_spark raised {type(error).__name__}: {str(error).strip()[:2000]}",
                remedy="correct the function; the JobManager calls it with the SparkSession of the job's cluster",
            ) from error
        if not hasattr(frame, "isStreaming"):
            raise InvalidJob(
                f"from_spark got {frame!r}, not a DataFrame", remedy="return a DataFrame from the function"
            )
        return frame

    def create_enumerator(self) -> SparkEnumerator:
        return SparkEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return StagedSplits(context)


class StagedSplits(SourceReader):
    """A reader that opens staged files."""

    def __init__(self, context: ReaderContext) -> None:
        self._stores = Stores(context.object_store_options)
        self._open_files = OpenFiles(FILES_IN_MEMORY)

    def open_split(self, split: Split, position: Any) -> SplitReader:
        files = StateFileReader(self._stores, split.root)
        return StagedReader(files, split.files[0], split.size, self._open_files, position)


class SparkEnumerator(SplitEnumerator):
    """An enumerator that assigns a batch when the previous batch was read."""

    discovery_interval_ms = LOOK_MS
    forgets_finished = True

    def __init__(self, source: SparkSource) -> None:
        self._source = source
        self._context: EnumeratorContext | None = None
        self._feed: Feed | None = None
        self._batch = -1
        self._log = ""
        self._unread: set[str] = set()
        self._done = False
        self._prefix = ""
        self._tag = f"penstock-{uuid.uuid4().hex}"
        """The tag of this attempt's Spark jobs."""

    def start(self, context: EnumeratorContext) -> None:
        self._context = context
        self._prefix = f"{SHARED}/{uuid.uuid4().hex}-"
        context.holds.expect_files(self._prefix)

    def discover(self) -> list[Split]:
        if self._done or self._unread:
            return []
        if self._feed is None:
            self._feed = self._open()
        batch = self._feed.take()
        if batch is None:
            self._done = self._feed.is_ended
            return []
        self._batch, self._log = batch.id, batch.log
        if isinstance(self._feed, TableFeed):
            self._done = True
        splits = [
            Split(f"{batch.id}-{number}", size=int(file["rows"]), files=[_handle(file)])
            for number, file in enumerate(batch.files)
        ]
        self._unread = {split.id for split in splits}
        assert self._context is not None
        self._context.holds.hold_files(self._holder, [file["path"] for file in batch.files])
        return splits

    def _open(self) -> Feed:
        spark = self._spark()
        frame = self._source.data_frame(spark.session())
        if not frame.isStreaming:
            return TableFeed(frame, self._stage, self._interrupt)
        return QueryFeed(
            frame, self._stage, self._interrupt, log=self._log, taken=self._batch, ends=self._source.bounded
        )

    def _interrupt(self) -> None:
        self._spark().session().interruptTag(self._tag)

    def _spark(self) -> SparkAccess:
        if self._context is None or self._context.spark is None:
            raise InvalidJob(
                "from_spark needs a Spark cluster, but this job runs without one",
                remedy="run the job on a cluster; in penstock.testing use a collection source with the same rows",
            )
        return self._context.spark

    def _stage(self, frame: Any, batch_id: int) -> list[dict[str, Any]]:
        assert self._context is not None
        stage = StageRows(self._context.storage, f"{self._prefix}{batch_id}-")
        session = self._spark().session()
        with self._spark().exclusive():
            session.addTag(self._tag)
            try:
                rows = map_in_arrow(frame, stage, FILES_SCHEMA).collect()
            finally:
                session.removeTag(self._tag)
        return sorted((row.asDict() for row in rows), key=lambda file: str(file["path"]))

    @property
    def _holder(self) -> str:
        assert self._context is not None
        return f"batch-{self._context.uid}-{self._batch}"

    def is_finished(self) -> bool:
        return self._done

    def on_split_finished(self, split_id: str) -> None:
        self._unread.discard(split_id)
        if not self._unread and self._context is not None:
            self._context.holds.release_files(self._holder)

    def snapshot(self) -> Any:
        return {
            "batch": self._batch,
            "unread": sorted(self._unread),
            "done": self._done,
            "offsets": query_log.offsets(self._log) if self._log else "",
            "log": self._log,
        }

    def restore(self, state: Any) -> None:
        if state:
            self._batch, self._log, self._done = state["batch"], state["log"], state["done"]
            self._unread = set(state["unread"])

    def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()


def _handle(file: dict[str, Any]) -> dict[str, Any]:
    return {name: file[name] for name in ("path", "size", "checksum")}
