"""`to_spark`: the rows of each completed checkpoint as a DataFrame.

A sink subtask collects the rows since the last barrier as columns. At the barrier it stages them as a file, and puts the file into the
checkpoint. When the checkpoint is complete, the JobManager calls the user's function once, with a DataFrame over the files of all
subtasks and the checkpoint's id.

The call may be repeated with the same id and rows after the loss of a JobManager, or after a call that takes too long. The function is
exactly-once if it stores the last id with its rows and skips ids that it has stored. The same applies to Spark's `foreachBatch`.
"""

from __future__ import annotations

import base64
import uuid
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.checkpoint.files.codec import STAGED_FILE
from penstock.common.errors import ClusterError, PenstockError, SinkError
from penstock.connectors.core.sink import Committer, Sink, SinkWriter, StagedCommittable, WriterContext
from penstock.connectors.spark.arrow_map import map_in_arrow
from penstock.connectors.spark.staged import file_ref, from_ipc, to_ipc
from penstock.records.batch import Batch, ColumnBatch
from penstock.records.columns import columns_of
from penstock.records.kinds import wide

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.files.state_files import StateFileReader

ROWS_AT_ONCE = 10_000
"""Number of rows of a staged file per Arrow batch of a DataFrame."""
_PIECES_SCHEMA = "path string, size long, checksum string, content binary"


class SparkSink(Sink):
    """A sink that calls `function(data_frame, checkpoint_id)` in the JobManager for each completed checkpoint with rows."""

    needs_spark = True

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self.function = function

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SparkWriter()

    def create_committer(self, object_store_options: dict[str, Any], *, job_id: str = "", uid: str = "") -> Committer:
        return SparkCommitter(self.function)


class SparkWriter(SinkWriter):
    """A writer that collects the rows since the last barrier as columns."""

    def __init__(self) -> None:
        self._buffered: list[pa.RecordBatch] = []

    def write_batch(self, batch: Batch, watermark: int) -> None:
        if len(batch):
            columns = wide(batch.columns) if isinstance(batch, ColumnBatch) else columns_of(batch.values)
            self._buffered.append(_in_utc(columns))

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if values:
            self._buffered.append(_in_utc(columns_of(values)))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        batches, self._buffered = self._buffered, []
        if not batches:
            return []
        schema = _unified([batch.schema for batch in batches])
        about = {"checkpoint": checkpoint_id, "schema": base64.b64encode(schema.serialize()).decode("ascii")}
        return [StagedCommittable(about, lambda: to_ipc(_as(schema, batches)))]


class SparkCommitter(Committer):
    """A committer that calls the function once per checkpoint, in order."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self._function = function
        self._committed: set[int] = set()
        self._tag = f"penstock-commit-{uuid.uuid4().hex}"
        self._leave: Callable[[], None] = _do_nothing

    def commit(self, committables: list[Any]) -> None:
        pieces: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for piece in committables:
            pieces[piece["checkpoint"]].append(piece)
        environment = self.environment
        if environment is None or environment.spark is None:
            raise ClusterError("to_spark found no Spark cluster in this process", remedy="run the job on a cluster")
        for checkpoint_id in sorted(pieces.keys() - self._committed):
            try:
                with environment.spark.exclusive() as self._leave:
                    self.check_wanted()
                    session = environment.spark.session()
                    session.addTag(self._tag)
                    try:
                        self._function(data_frame(session, pieces[checkpoint_id], environment.files), checkpoint_id)
                    finally:
                        session.removeTag(self._tag)
            except PenstockError:
                raise
            except Exception as error:
                raise SinkError(
                    f"the function of to_spark raised {type(error).__name__} for checkpoint {checkpoint_id}: "
                    f"{str(error).strip()[:2000]}",
                    remedy="correct the function or make its target writable; the job calls it again with the same rows",
                ) from error
            self._committed.add(checkpoint_id)

    def interrupt(self) -> None:
        """Stop the Spark jobs of the function and release the cluster. Python code of the function runs in this process and cannot be
        stopped."""
        try:
            if self.environment is not None and self.environment.spark is not None:
                self.environment.spark.session().interruptTag(self._tag)
        finally:
            self._leave()


def _do_nothing() -> None: ...


def data_frame(session: Any, pieces: list[dict[str, Any]], files: StateFileReader) -> Any:
    """Return a DataFrame over staged pieces with one partition per piece. Spark's executors read the pieces."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = _unified([pa.ipc.read_schema(pa.py_buffer(base64.b64decode(piece["schema"]))) for piece in pieces])
    named = []
    for piece in pieces:
        file = piece.get(STAGED_FILE)
        content = None if file is not None else base64.b64decode(piece["content"])
        named.append(("", 0, "", content) if file is None else (file["path"], file["size"], file["checksum"], None))
    rows = session.sparkContext.parallelize(named, len(named))
    frame = session.createDataFrame(rows, _PIECES_SCHEMA)
    return map_in_arrow(frame, ReadPieces(files, schema), from_arrow_schema(schema))


class ReadPieces:
    """A function for `mapInArrow`: it takes rows of `_PIECES_SCHEMA` and yields the rows of the pieces."""

    def __init__(self, files: StateFileReader, schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.to_pylist():
                content = piece["content"]
                table = from_ipc(self._files.read(file_ref(piece)) if content is None else content)
                yield from _as(self._schema, table.to_batches()).to_batches(ROWS_AT_ONCE)


def _in_utc(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns with zoned times in UTC. Spark keeps only the instant, and columns with several zones cannot be concatenated."""
    for index, field in enumerate(columns.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz not in (None, "UTC"):
            to = pa.timestamp(field.type.unit, "UTC")
            columns = columns.set_column(index, field.with_type(to), columns.column(index).cast(to))
    return columns


def _unified(schemas: list[pa.Schema]) -> pa.Schema:
    """Return the common schema of the batches.

    Raises:
        SinkError: a field has types without a common type.
    """
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise SinkError(
            f"the rows for to_spark have no common schema: {error}",
            remedy="give all records of the stream the same fields with the same types",
        ) from error


def _as(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Table:
    """Return the batches as one table. The schema covers the schema of each batch."""
    tables = [schema.empty_table(), *(pa.Table.from_batches([batch]) for batch in batches)]
    return pa.concat_tables(tables, promote_options="permissive").cast(schema)
