"""Steps of a recording: take a savepoint, and read the files and facts before the first commit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.jobmanager.job.requests import Operation
from penstock.testing import JobHarness


def take_savepoint(harness: JobHarness, target: Path) -> None:
    """Take a savepoint of the running job, and write it to `target`."""
    with TemporaryDirectory() as made:
        harness._driver.request(Operation("savepoint", {"directory": f"file://{made}"}))
        (savepoint,) = Path(made).iterdir()
        shutil.copytree(savepoint, target)


@contextmanager
def called_first(owner: type, method: str, call: Callable[[], None]) -> Iterator[None]:
    """Make `method` call `call` before it does its work."""
    original = getattr(owner, method)

    def calling(self: Any, *arguments: Any) -> Any:
        call()
        return original(self, *arguments)

    setattr(owner, method, calling)
    try:
        yield
    finally:
        setattr(owner, method, original)
