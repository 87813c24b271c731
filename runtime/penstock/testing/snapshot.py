"""A snapshot of a job under test, and its folder."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field

from penstock.testing.journal import Journal
from penstock.testing.outputs import Record


class SnapshotFolder:
    """A temporary folder that is removed when no harness and no snapshot refers to it."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="penstock-harness-")
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"file://{self.path}"


@dataclass(frozen=True)
class JobSnapshot:
    """The result of `JobHarness.snapshot`. It remains valid after the harness is closed.

    Args:
        location: URL of the checkpoint, which all tools for checkpoints and savepoints can read.
        outputs: the outputs of the job at the time of the snapshot.
    """

    location: str
    outputs: dict[str, list[Record]] = field(repr=False)
    journal: Journal = field(repr=False)
    time: int = field(repr=False)
    folder: SnapshotFolder = field(repr=False)
