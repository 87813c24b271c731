"""Import of Google's protobuf library, which is an extra."""

from __future__ import annotations

from typing import Any

from penstock.common.program.extras import import_extra


def package(name: str) -> Any:
    """Return a module of the library.

    Raises:
        InvalidJob: the library is not installed.
    """
    return import_extra(f"google.protobuf.{name}", "protobuf", "Protobuf")
