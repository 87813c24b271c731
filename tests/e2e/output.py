"""The output of a self-verifying job on S3: whether it is correct, and how long it paused."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fsspec
import msgspec

from tests.integration.engine.selfcheck.output import problems_in

if TYPE_CHECKING:
    from tests.integration.engine.selfcheck.job import Plan

READS = 4
READ_PAUSE_S = 1.5


@dataclass(frozen=True)
class Gap:
    """The longest pause. `processed`: between two records. `visible`: between two files that a reader can see."""

    processed: float
    visible: float

    def __str__(self) -> str:
        return f"output gap {self.processed:.1f} s (as seen by a reader {self.visible:.1f} s)"


class Output:
    """A folder on S3. Files are written once, so each is read once.

    Args:
        url: folder of `numbers` and `windows`.
        options: options of the storage driver.
    """

    def __init__(self, plan: Plan, url: str, options: dict[str, Any]) -> None:
        self.plan = plan
        self.url = url
        self._fs, self._path = fsspec.core.url_to_fs(url, **options)
        self._files: dict[str, tuple[float, list[dict[str, int]]]] = {}
        self._decode = msgspec.json.Decoder(dict[str, int]).decode

    def refresh(self) -> None:
        """Read the new files."""
        self._fs.invalidate_cache()
        listed = self._fs.find(self._path, detail=True)
        # s3fs returns the folder itself if its first file appears while it lists an empty folder.
        found = {path: info for path, info in listed.items() if info["type"] == "file"}
        gone = self._files.keys() - found.keys()
        assert not gone, f"visible output is gone: {sorted(gone)[:5]}"
        new = sorted(found.keys() - self._files.keys())
        for path, content in self._fs.cat(new).items() if new else ():
            assert not content or content.endswith(b"\n"), f"{path} ends within a line"
            written = found[path]["LastModified"].timestamp()
            self._files[path] = (written, [self._decode(line) for line in content.splitlines()])

    def records(self, kind: str) -> list[dict[str, int]]:
        """Return all records of `numbers` or `windows` so far."""
        prefix = f"{self._path}/{kind}/"
        return [record for path, (_, records) in self._files.items() if path.startswith(prefix) for record in records]

    @property
    def count(self) -> int:
        """Number of records of `numbers` that a reader can see now."""
        self.refresh()
        return len(self.records("numbers"))

    def verify(self) -> None:
        """Verify that the output is exactly once: no number is missing or duplicate, and state and sums match.

        A read while files appear may miss one of two files, so it is repeated. A real defect remains.
        """
        problems: list[str] = []
        for attempt in range(READS):
            time.sleep(READ_PAUSE_S if attempt else 0)
            self.refresh()
            problems = problems_in(self.plan, self.records("numbers"), self.records("windows"), complete=False)
            if not problems:
                return
        raise AssertionError("\n".join(problems))

    def first(self) -> tuple[float, float]:
        """Return when the first number was processed, and when a reader could see one, in seconds since the epoch."""
        self.refresh()
        return min(record["at"] / 1000 for record in self.records("numbers")), min(self._written())

    def _written(self) -> Iterator[float]:
        prefix = f"{self._path}/numbers/"
        return (written for path, (written, _) in self._files.items() if path.startswith(prefix))

    def gap_since(self, began: float) -> Gap:
        """Return the longest pause of the output after a moment (seconds since the epoch)."""
        self.refresh()
        processed = (record["at"] / 1000 for record in self.records("numbers"))
        return Gap(_longest(processed, began), _longest(self._written(), began))


def _longest(times: Iterable[float], began: float) -> float:
    """Return the longest pause that ended after `began`. A pause that started earlier counts completely.

    >>> _longest([1.0, 2.0, 5.0, 6.0], 3.0)
    3.0
    """
    ordered = sorted(times)
    return max((b - a for a, b in itertools.pairwise(ordered) if b >= began), default=0.0)
