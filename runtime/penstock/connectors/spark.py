"""Spark's DataFrames at the borders of a job: `from_spark`, `to_spark`.

A `SparkSource` only describes: which DataFrame, and how its record batches enter the chain. The JobManager makes the
DataFrame and, for a streaming one, lets its `foreachBatch` drive the epochs.

A `SparkSink` collects rows as Arrow record batches. Those of a checkpoint go, compressed, into its manifest, and when it is
complete the JobManager calls the user's function once with a DataFrame of them all. After a crash the call may be repeated
with the same id and the same rows: like `foreachBatch`, a function that remembers the last id it wrote is exactly-once.
What a checkpoint holds should stay in the megabytes; for more, write files with a FileSink and read them with Spark.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.common.errors import ClusterError, InvalidJob, PenstockError, SinkError
from penstock.connectors.sink import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.source import ReaderContext, Source, SourceReader, SplitEnumerator
from penstock.taskmanager.batch import Batch, ColumnBatch
from penstock.taskmanager.operators.columns import columns_of, rows_as_rows

if TYPE_CHECKING:
    from collections.abc import Callable


class SparkSource(Source):
    """The rows of a DataFrame, as Rows.

    Args:
        df_factory: called in the JobManager with its SparkSession; returns the DataFrame, streaming or not.
    """

    bounded = False

    def __init__(self, df_factory: Callable[[Any], Any]) -> None:
        self.df_factory = df_factory

    def data_frame(self, session: Any) -> Any:
        """The DataFrame.

        Raises:
            InvalidJob: the factory gave something else.
        """
        frame = self.df_factory(session)
        if not hasattr(frame, "isStreaming"):
            raise InvalidJob(
                f"from_spark got {frame!r}, not a DataFrame", remedy="return a DataFrame from the function"
            )
        return frame

    @staticmethod
    def batch(columns: pa.RecordBatch) -> ColumnBatch:
        """A record batch of the DataFrame as it enters the chain."""
        return ColumnBatch(columns, None, rows_as_rows)

    def create_enumerator(self) -> SplitEnumerator:
        raise self._no_splits()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise self._no_splits()

    @staticmethod
    def _no_splits() -> InvalidJob:
        return InvalidJob(
            "a Spark source is driven by Spark and has no splits",
            remedy="run the job on a cluster; in penstock.testing use a collection source with the same rows",
        )


class SparkSink(Sink):
    """Calls `function(data_frame, checkpoint_id)` in the JobManager for each completed checkpoint that has rows."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self.function = function

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SparkWriter()

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return SparkCommitter(self.function)


class SparkWriter(SinkWriter):
    """Holds the rows since the last barrier as columns."""

    def __init__(self) -> None:
        self._held: list[pa.RecordBatch] = []

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if len(batch):
            self._held.append(batch.columns if isinstance(batch, ColumnBatch) else columns_of(batch.values))

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if values:
            self._held.append(columns_of(values))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        held, self._held = self._held, []
        if not held:
            return []
        table = pa.concat_tables([pa.Table.from_batches([b]) for b in held], promote_options="permissive")
        return [{"checkpoint": checkpoint_id, "rows": base64.b64encode(to_ipc(table)).decode("ascii")}]


class SparkCommitter(Committer):
    """Needs the session of the JobManager."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self._function = function

    def commit(self, committables: list[Any]) -> None:
        pieces: dict[int, list[pa.Table]] = defaultdict(list)
        for piece in committables:
            pieces[piece["checkpoint"]].append(from_ipc(base64.b64decode(piece["rows"])))
        for checkpoint_id in sorted(pieces):
            table = pa.concat_tables(pieces[checkpoint_id], promote_options="permissive")
            try:
                self._function(_session().createDataFrame(table), checkpoint_id)
            except PenstockError:
                raise
            except Exception as error:
                raise SinkError(
                    f"the function of to_spark raised {type(error).__name__} for checkpoint {checkpoint_id}: {error}",
                    remedy="correct the function or make its target writable; it is called again with the same rows",
                ) from error


def to_ipc(table: pa.Table) -> bytes:
    """A table as a compressed Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(out.getvalue())


def from_ipc(data: bytes) -> pa.Table:
    """The table of `to_ipc`."""
    return pa.ipc.open_stream(data).read_all()


def _session() -> Any:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        raise ClusterError("to_spark found no Spark session in this process", remedy="run the job on a cluster")
    return SparkSession.builder.getOrCreate()
