"""Protobuf's own library, an extra."""

from __future__ import annotations

from typing import Any

from penstock.common.extras import module_of_extra


def package(name: str) -> Any:
    """
    Raises:
        InvalidJob: it is not installed.
    """
    return module_of_extra(f"google.protobuf.{name}", "protobuf", "Protobuf")
