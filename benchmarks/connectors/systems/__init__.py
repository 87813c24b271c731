"""A module for each system. It is imported at its first use, because each system needs a separate extra, and most need a server."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path

from benchmarks.connectors.case import Case

_MODULES = {
    "plain": "plain",
    "files": "files",
    "lakehouse": "lakehouse",
    "http": "http",
    "kafka": "kafka",
    "postgres": "postgres",
    "rabbitmq": "rabbitmq",
    "redis": "redis",
    "cassandra": "cassandra",
    "opensearch": "opensearch",
    "sqs": "aws",
    "kinesis": "aws",
}
NAMES = tuple(_MODULES)


def opened(name: str, folder: Path) -> AbstractContextManager[list[Case]]:
    """Start the server of a system for the length of the block, and return the cases.

    Raises:
        ToolError: the server is not installed.
    """
    found: AbstractContextManager[list[Case]] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)(folder)
    return found
