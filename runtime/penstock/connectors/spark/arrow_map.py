"""`DataFrame.mapInArrow` without pandas.

PySpark asks for pandas at every function that takes Arrow batches, also where no pandas object is made. The function is
the same; only the question is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_CORES = 8
"""Of those that executors offer, 16 for a slot, for each partition: two tasks of a slot at once."""


def map_in_arrow(
    frame: Any, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any
) -> Any:
    """The DataFrame that the function makes of each partition.

    Executors offer more cores than they have, and each task has a Python worker: partitions are put together until there are two
    for a slot. (Resource profiles would say it of the tasks; Spark has them for its own cluster managers only.)

    Args:
        function: picklable; called on the executors.
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
