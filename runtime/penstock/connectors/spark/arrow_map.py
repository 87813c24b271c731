"""`DataFrame.mapInArrow` without pandas.

PySpark requires pandas in every function on Arrow batches, even if no pandas object is created. This module calls the same function
without the check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_CORES = 8
"""Number of cores per partition. A slot offers 16 cores, so it runs two tasks at once."""


def map_in_arrow(
    frame: Any, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any
) -> Any:
    """Return the DataFrame that results from the function on each partition.

    Executors offer more cores than they have, and each task starts a Python worker. So partitions are coalesced to two per slot.
    (Resource profiles would limit the tasks, but Spark supports them only with its own cluster managers.)

    Args:
        function: a picklable function that runs on the executors.
        schema: a StructType or its DDL.
    """
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    frame = frame.coalesce(max(2, frame.sparkSession.sparkContext.defaultParallelism // _CORES))
    udf = UserDefinedFunction(
        function, schema, name=type(function).__name__, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = udf(*[frame[name] for name in frame.columns])
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
