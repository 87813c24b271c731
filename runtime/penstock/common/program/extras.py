"""Libraries that only some connectors need. They are extras of the package and are imported at their first use."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.common.errors import InvalidJob


def import_extra(name: str, extra: str, needed_by: str) -> Any:
    """Import and return a module of a library that `penstock[extra]` installs.

    Raises:
        InvalidJob: the library is not installed. The error names the missing extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidJob(
            f"{needed_by} needs {name.partition('.')[0]}, which is not installed: {error}",
            remedy=f"pip install 'penstock[{extra}]', also in the image of the job",
        ) from error
