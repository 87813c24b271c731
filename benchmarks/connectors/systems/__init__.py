"""A module for each system. Each is imported when it is asked for: a system needs an extra of its own, and most a server."""

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
    """The cases of a system, whose server runs as long as the block.

    Raises:
        ToolError: there is no server to start.
    """
    found: AbstractContextManager[list[Case]] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)(folder)
    return found
