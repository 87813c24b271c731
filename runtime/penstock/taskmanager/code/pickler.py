"""The pickler for everything that contains code: programs, operators, and records of classes that cannot be imported.

cloudpickle copies functions and classes that cannot be imported, such as those of the user's script. A copy must mean the same in
another process. So this pickler adds the fields of structs and the meaning of annotations (`script_classes`), and the
identity of sentinels (`sentinels`).
"""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from typing import Any, NoReturn

from pyspark import cloudpickle

from penstock.taskmanager.code.script_classes import reduced_class
from penstock.taskmanager.code.sentinels import reduced_sentinel


def refuse_to_pickle(value: Any) -> NoReturn:
    """Raise a TypeError, as an entry of a `dispatch_table`."""
    raise TypeError(f"cannot pickle {type(value).__name__!r} object")


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that copies code by value if the code cannot be imported.

    The pickler leaves out the cache that msgspec keeps on a dataclass: the cache cannot be pickled, and msgspec creates
    it again. The pickler refuses a `memoryview`, because cloudpickle would write it as bytes and the receiver would get
    bytes.
    """

    dispatch_table = ChainMap({memoryview: refuse_to_pickle}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            if "__msgspec_cache__" in vars(obj):
                type.__delattr__(obj, "__msgspec_cache__")
            return reduced_class(obj, super().reducer_override)
        reduced = super().reducer_override(obj)
        if reduced is not NotImplemented:
            return reduced
        return reduced_sentinel(obj, cloudpickle.cloudpickle.list_registry_pickle_by_value())


class RecordPickler(CodePickler):
    """A pickler for records. It also refuses an open file, because cloudpickle would write the file's text."""

    dispatch_table = ChainMap({io.TextIOWrapper: refuse_to_pickle}, CodePickler.dispatch_table)


def dumps(value: Any, pickler: type[CodePickler] = CodePickler) -> bytes:
    """Return the value as bytes that `pickle.loads` reads."""
    out = io.BytesIO()
    pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()
