"""A snapshot of a job under test, and the folder it lies in."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field

from penstock.testing.journal import Journal
from penstock.testing.outputs import Record


class SnapshotFolder:
    """A temporary folder that goes when neither a harness nor a snapshot refers to it any more."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="penstock-harness-")
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"file://{self.path}"


@dataclass(frozen=True)
class JobSnapshot:
    """What `JobHarness.snapshot` gives. It stays good when the harness is closed.

    Args:
        location: URL of the checkpoint: all tools for checkpoints and savepoints read it.
        outputs: what the job had given when the snapshot was taken.
    """

    location: str
    outputs: dict[str, list[Record]] = field(repr=False)
    journal: Journal = field(repr=False)
    time: int = field(repr=False)
    folder: SnapshotFolder = field(repr=False)
