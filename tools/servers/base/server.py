"""The operations that every server has, for tests and for the command line."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import argparse
    import subprocess
    from types import TracebackType

HOST = "127.0.0.1"


class Server(ABC):
    """A server that lives as long as the ``with`` block, or between ``start`` and ``stop``.

    ``root`` holds the data and the logs. A later start with the same root finds the same data and uses the same ports.
    """

    title: str
    """The name of the server in errors."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root).absolute()

    @classmethod  # noqa: B027 - most servers have none
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command line that only this server has."""

    @classmethod
    def with_options(cls, options: argparse.Namespace) -> Self:
        """Return the server that the options of the command line describe. It is not started."""
        return cls(options.state_dir)

    def set_up(self, options: argparse.Namespace) -> None:  # noqa: B027 - most servers need none
        """Create the objects that the options name, such as topics, on the started server."""

    @abstractmethod
    def start(self) -> Self:
        """Start the server and wait until it responds.

        Raises ``ToolError`` if the program is missing or does not start.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the server cleanly. Its data stays in ``root``."""

    @abstractmethod
    def exports(self) -> dict[str, str]:
        """Return the environment variables with the server's address and keys for clients."""

    @abstractmethod
    def running(self) -> list[subprocess.Popen[bytes]]:
        """Return the processes of the server that were started and not stopped."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
