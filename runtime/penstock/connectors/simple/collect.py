"""`CollectSink`: brings records back to the program that runs the job (`execute_and_collect`).

Records travel pickled, one by one, between the processes of one job. They never go to storage. A worker has only copies of
the classes of the program's main script. The pickler refers to these classes by name, so the program gets instances of
the original classes.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext

if TYPE_CHECKING:
    from collections.abc import Callable


class CollectSink(Sink):
    """A sink that sends every record to the JobManager, under the name `collect_id`.

    The records of an epoch are part of the message that acknowledges the epoch, so the records of a failed epoch do not arrive.
    The JobManager passes records to the program when the checkpoint that covers them is complete.
    """

    def __init__(self, collect_id: str) -> None:
        self.collect_id = collect_id

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        operator = context.operator
        if operator is None or operator.results is None:
            raise InvalidJob("records cannot be collected here", remedy="run the job with execute_and_collect")
        return CollectWriter(self.collect_id, operator.results)


class CollectWriter(SinkWriter):
    def __init__(self, collect_id: str, results: Callable[[str, list[Any]], None]) -> None:
        self._collect_id = collect_id
        self._results = results

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._results(self._collect_id, list(map(encode_collected, values)))


def encode_collected(value: Any) -> bytes:
    """Return a record as bytes that travel to the program.

    Raises:
        InvalidJob: the record cannot leave the process (an open file, a lock, a class made inside a function).
    """
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        out = io.BytesIO()
        try:
            _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidJob(
                f"{value!r} cannot be collected: {error}",
                remedy="map the stream to values of builtin types or of classes at the top of a module",
            ) from error
        return out.getvalue()


def decode_collected(encoded: bytes) -> Any:
    """Return the record that `encode_collected` encoded.

    Raises:
        InvalidJob: this program does not have the record's class.
    >>> decode_collected(encode_collected(("KJFK", 21.5)))
    ('KJFK', 21.5)
    """
    return _Unpickler(io.BytesIO(encoded)).load()


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> str | None:
        return obj.__qualname__ if isinstance(obj, type) and obj.__module__ == "__main__" else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        found: Any = sys.modules["__main__"]
        try:
            for name in pid.split("."):
                found = getattr(found, name)
        except AttributeError:
            raise InvalidJob(
                f"collected records are of class {pid!r} of the main script, which is not found in this process",
                remedy="define the class at the top of a module that both the job and this program import",
            ) from None
        return found
