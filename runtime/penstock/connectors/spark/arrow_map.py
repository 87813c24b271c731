"""`DataFrame.mapInArrow` without pandas.

PySpark asks for pandas at every function that takes Arrow batches, also where no pandas object is made. The function is
the same; only the question is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

TASK_CORES = 8
"""Of the 16 that an executor offers: two tasks at once."""


def map_in_arrow(
    frame: Any, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any
) -> Any:
    """The DataFrame that the function makes of each partition.

    Args:
        function: picklable; called on the executors.
        schema: a StructType or its DDL.
    """
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    # An executor offers more cores than it has, and each task has a Python worker.
    profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(TASK_CORES)).build
    udf = UserDefinedFunction(
        function, schema, name=type(function).__name__, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column = udf(*[frame[name] for name in frame.columns])
    java_profile = frame._build_java_profile(profile)
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, java_profile), frame.sparkSession)
