"""A program on its way to another process that has the same Penstock and packages, and not its modules.

Functions and classes of the program's own modules (what lies neither in Python's folders nor in a package's) travel by value; what
packages define is found by its name at the other end. It is code: who takes it runs it.
"""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from types import ModuleType

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Code of functions differs between versions."""


def shipped(program: Any) -> bytes:
    """The program as bytes.

    Raises:
        InvalidJob: something in it cannot be sent.
    """
    from pyspark import cloudpickle

    with _by_value(own_modules()):
        try:
            return bytes(cloudpickle.dumps(program, pickle.HIGHEST_PROTOCOL))
        except Exception as error:
            raise InvalidJob(
                f"the program cannot be sent: {type(error).__name__}: {error}",
                remedy="functions, and the globals they use, must be picklable: make connections, locks and the like in `open`",
            ) from error


def unpacked(content: bytes, penstock: str, python: str, version: str) -> Any:
    """What `shipped` was given.

    Args:
        penstock, python: versions that made it.
        version: of Penstock here.

    Raises:
        InvalidJob: it was made by other versions, is no program, or needs what is not installed here.
    """
    if (penstock, python) != (version, PYTHON):
        raise InvalidJob(
            f"the program comes from Penstock {penstock or '?'} under Python {python or '?'}, and here are {version} and {PYTHON}",
            remedy="run the program with the versions of the cluster's image",
        )
    from pyspark import cloudpickle

    try:
        return cloudpickle.loads(content)
    except ModuleNotFoundError as error:
        raise InvalidJob(
            f"the program needs the module {error.name!r}, which is not installed where it is to run",
            remedy="put the package into the cluster's image",
        ) from error
    except Exception as error:
        raise InvalidJob(
            f"this is no program: {type(error).__name__}: {error}", remedy="send it by create_remote_environment"
        ) from error


def own_modules() -> list[ModuleType]:
    """Modules of the program that are loaded: none of Python's, of an installed package, or of Penstock."""
    paths = sysconfig.get_paths()
    others = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    others |= {entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")}
    folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in others)
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or name.partition(".")[0] == "penstock" or not isinstance(file, str):
            continue
        if not os.path.realpath(file).startswith(folders):
            found.append(module)
    return found


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    from pyspark import cloudpickle

    known = cloudpickle.cloudpickle.list_registry_pickle_by_value()
    added = [
        module for module in modules if module.__name__ not in known and sys.modules.get(module.__name__) is module
    ]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
