"""The supply of batches: a DataFrame that is staged once, or a streaming query whose micro-batches wait until the source takes them."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.common.errors import InvalidJob, PenstockError, SourceError
from penstock.connectors.spark import query_log

logger = logging.getLogger(__name__)

Stage = Callable[[Any, int], list[dict[str, Any]]]
"""A function that stages the rows of a DataFrame as batch n and returns the files: path, size, checksum, rows."""
_STATEFUL = (
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "GlobalLimit",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
)
_WAIT_S = 0.5


@dataclass(frozen=True)
class StagedBatch:
    id: int
    files: list[dict[str, Any]]
    log: str = ""
    """The query's log directly after this batch was staged. It is empty for a DataFrame that does not stream."""


class Feed:
    """A feed that stages in its own thread. At most one batch waits at a time. `close` ends it.

    Args:
        interrupt: a function that stops the Spark jobs that stage for this feed.
    """

    def __init__(self, interrupt: Callable[[], Any] = lambda: None) -> None:
        self._interrupt = interrupt
        self._condition = threading.Condition()
        self._ready: StagedBatch | None = None
        self._closing = False
        self._ended = False
        self._error: BaseException | None = None

    def take(self) -> StagedBatch | None:
        """Return the waiting batch, or None if no batch waits yet.

        Raises:
            SourceError, InvalidJob: the query has failed.
        """
        with self._condition:
            batch, self._ready = self._ready, None
            if batch is None and self._error is not None:
                raise _explained(self._error)
            self._condition.notify_all()
            return batch

    @property
    def is_ended(self) -> bool:
        """Return whether every batch was taken and no further batch will follow."""
        with self._condition:
            return self._ended and self._ready is None and self._error is None

    def close(self) -> None:
        """Stop the running work. If the cluster does not answer, the work continues until it ends by itself."""
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        try:
            self._interrupt()
        except Exception as error:  # the work ends by itself, or with the cluster
            logger.info("the running Spark jobs of a DataFrame were not stopped: %s", error)

    def _hand_over(self, batch: StagedBatch) -> None:
        """Wait until the batch is taken or the feed is closed."""
        with self._condition:
            self._ready = batch
            while self._ready is batch and not self._closing:
                self._condition.wait(_WAIT_S)

    def _end(self, error: BaseException | None = None) -> None:
        with self._condition:
            self._ended = True
            self._error = None if self._closing else error
            self._condition.notify_all()


class TableFeed(Feed):
    """The feed of a DataFrame that does not stream. All its rows are batch 0."""

    def __init__(self, frame: Any, stage: Stage, interrupt: Callable[[], Any] = lambda: None) -> None:
        super().__init__(interrupt)
        self._frame = frame
        self._stage = stage
        self._thread = threading.Thread(target=self._run, name="penstock-from-spark", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._hand_over(StagedBatch(0, self._stage(self._frame, 0)))
            self._end()
        except Exception as error:
            self._end(error)


class QueryFeed(Feed):
    """The feed of a streaming query's micro-batches.

    Args:
        frame: a streaming DataFrame.
        stage: the function that stages a batch, called in the query's thread.
        log: the log from the checkpoint to continue from. Empty means to start from the beginning.
        taken: the id of the last batch taken before `log` was captured. This batch and earlier batches are not staged
            again.
        ends: whether to stop when everything that existed at the start was read.
    """

    def __init__(
        self,
        frame: Any,
        stage: Stage,
        interrupt: Callable[[], Any] = lambda: None,
        *,
        log: str = "",
        taken: int = -1,
        ends: bool = False,
    ) -> None:
        super().__init__(interrupt)
        stateful = stateful_operators(frame)
        if stateful:
            raise InvalidJob(
                f"from_spark was given a streaming query that keeps its own state ({', '.join(stateful)}): that state "
                "would not be part of the job's checkpoints",
                remedy="do the aggregation, deduplication or join in the job: key_by, windows, keyed state",
            )
        self._stage = stage
        self._taken = taken
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-query-"))
        if log:
            query_log.lay(log, self._folder)
        writer = frame.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", self._folder.as_uri())
        if ends:
            writer = writer.trigger(availableNow=True)
        self._query = writer.start()
        self._thread = threading.Thread(target=self._watch, name="penstock-from-spark", daemon=True)
        self._thread.start()

    def _on_batch(self, frame: Any, batch_id: int) -> None:
        if batch_id <= self._taken or self._closing:
            return
        try:
            files = self._stage(frame, batch_id)
            self._hand_over(StagedBatch(batch_id, files, query_log.capture(self._folder)))
        except Exception:
            if not self._closing:  # otherwise the query was interrupted and is about to end
                raise

    def _watch(self) -> None:
        try:
            self._query.awaitTermination()
            self._end()
        except Exception as error:
            self._end(error)

    def close(self) -> None:
        super().close()
        try:
            self._query.stop()
        except Exception as error:  # the query ends by itself, or with the cluster
            logger.info("a streaming query did not stop in time: %s", error)
        shutil.rmtree(self._folder, ignore_errors=True)


def stateful_operators(frame: Any) -> list[str]:
    """Return the names of a streaming DataFrame's operators for which Structured Streaming keeps state."""
    found: list[str] = []

    def visit(node: Any) -> None:
        if not node.isStreaming():
            return
        children = [node.children().apply(i) for i in range(node.children().size())]
        name = str(node.nodeName())
        if name.startswith(_STATEFUL) or (name == "Join" and all(child.isStreaming() for child in children)):
            found.append(name)
        for child in children:
            visit(child)

    visit(frame._jdf.queryExecution().analyzed())
    return found


def _explained(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    text = str(error).strip()
    return SourceError(
        f"the DataFrame of from_spark cannot be read: {text[:2000] or type(error).__name__}",
        remedy="correct the cause that the message names. The job continues from its last checkpoint when the query can run",
    )
