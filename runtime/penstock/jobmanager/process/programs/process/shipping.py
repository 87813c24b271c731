"""The transfer of a program to another process with the same Penstock and packages, but without the program's modules.

Functions and classes of the program's modules are serialized by value. These modules are outside the
directories of Python and of installed packages. Definitions in packages are referenced by name. The bytes are code, and the
receiver runs it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob

if TYPE_CHECKING:
    from types import ModuleType

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Python version, because the code of functions differs between versions."""


def shipped(program: Any) -> bytes:
    """Return the program as bytes.

    Raises:
        InvalidJob: a part of the program cannot be serialized.
    """
    from penstock.taskmanager.code.pickler import dumps

    with _by_value(own_modules()):
        try:
            return dumps(program)
        except Exception as error:
            raise InvalidJob(
                f"the program cannot be sent: {type(error).__name__}: {error}",
                remedy="functions and the globals that they use must be picklable. Create connections, locks and similar objects in "
                "`open`",
            ) from error


def unpacked(content: bytes, penstock: str, python: str, version: str) -> Any:
    """Return the object that was passed to `shipped`.

    Args:
        penstock, python: versions that created the bytes.
        version: version of Penstock in this process.

    Raises:
        InvalidJob: other versions created the bytes, or the bytes are not a program, or the program needs a package that is not installed
            here.
    """
    check_versions(penstock, python, version)
    from pyspark import cloudpickle

    try:
        return cloudpickle.loads(content)
    except ModuleNotFoundError as error:
        raise InvalidJob(
            f"the program needs the module {error.name!r}, which is not installed in this cluster",
            remedy="add the package to the image of the cluster",
        ) from error
    except Exception as error:
        raise InvalidJob(
            f"the request has no program: {type(error).__name__}: {error}",
            remedy="submit the program with create_remote_environment",
        ) from error


def check_versions(penstock: str, python: str, version: str) -> None:
    """Check that a program was sent by the versions of this process.

    Raises:
        InvalidJob: other versions sent it.
    """
    if (penstock, python) != (version, PYTHON):
        raise InvalidJob(
            f"the program comes from Penstock {penstock or '?'} with Python {python or '?'}, but this cluster has {version} "
            f"and {PYTHON}",
            remedy="run the program with the versions of the cluster's image",
        )


def own_modules() -> list[ModuleType]:
    """Return the loaded modules of the program, without the modules of Python, of installed packages and of
    Penstock."""
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
