"""Libraries that only some connectors need: extras of the package, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.common.errors import InvalidJob


def module_of_extra(name: str, extra: str, needed_by: str) -> Any:
    """A module of a library that `penstock[extra]` brings.

    Raises:
        InvalidJob: it is not installed; says which extra is missing.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidJob(
            f"{needed_by} needs {name.partition('.')[0]}, which is not installed: {error}",
            remedy=f"pip install 'penstock[{extra}]', also in the image of the job",
        ) from error
