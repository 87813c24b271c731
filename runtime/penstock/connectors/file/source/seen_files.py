"""The files that a source has already found, so that it reads none twice and misses none.

Path, modification time, size and version identify a file. A changed file is another file. No order separates new files
from old files, for three reasons:

* A file that is moved into the directory keeps its old modification time.
* S3 shows an upload of many parts under the time at which it began.
* The clocks of writers differ.

A watermark over times or names would lose such files, even with a grace period. So the source remembers the files themselves,
but only these:

listed   the files of the last listing. The next listing would find them again.
gone     the files of earlier listings that have left. An inconsistent listing may miss files for a moment, show the state before the last
         change, or show nothing (an unavailable mount). The source remembers these files until it has
         listed the directory for `FORGET_MS` without them. It always remembers the last `KEPT` files that left. Time counts from listing to
         listing, and only while a listing has files. So an unavailable mount, a suspended job or a machine with another
         clock does not make a source forget.

The source stores 12 bytes of a hash per file. If it remembers a million files, the probability that one of 10^9 new files is
mistaken for a known file is below 10^-13. Flink's `ContinuousFileSplitEnumerator` keeps the paths of all files it has seen.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from penstock.connectors.file.storage import FileStatus

FORGET_MS = 3_600_000
KEPT = 4_096
_GRAIN_MS = 60_000
"""Files that left within the same minute are stored together."""
_BYTES = 12


class SeenFiles:
    """The memory of one file source.

    Args:
        interval_ms: the listing interval. A pause counts at most as two intervals, or as a minute if this is longer.
        now_ms: a monotonic clock of this process.
    """

    def __init__(self, interval_ms: int | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self._longest_ms = max(2 * (interval_ms or 0), _GRAIN_MS)
        self._now_ms = now_ms or _monotonic_ms
        self._watched_ms = 0
        self._looked_at: int | None = None
        self._listed: set[bytes] = set()
        self._gone: dict[bytes, int] = {}
        """Time at which each file left, on the clock of `_watched_ms`; the oldest come first."""

    def take_new(self, present: Iterable[FileStatus]) -> list[FileStatus]:
        """Return the files of a listing that were not seen before, in the listing's order, and remember the listing."""
        here = {_digest(status): status for status in present}
        self._look(is_empty=not here)
        new = [status for digest, status in here.items() if digest not in self._listed and digest not in self._gone]
        since = self._watched_ms - self._watched_ms % _GRAIN_MS
        missing = self._listed.difference(here)
        for digest in here:
            self._gone.pop(digest, None)
        self._gone.update(dict.fromkeys(missing, since))
        self._listed = set(here)
        self._forget()
        return new

    def _look(self, *, is_empty: bool) -> None:
        now = self._now_ms()
        if self._looked_at is not None and not is_empty:
            self._watched_ms += min(now - self._looked_at, self._longest_ms)
        self._looked_at = now

    def _forget(self) -> None:
        oldest = list(islice(self._gone.items(), max(0, len(self._gone) - KEPT)))
        for digest, since in oldest:
            if self._watched_ms - since <= FORGET_MS:
                break
            del self._gone[digest]

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON values, with 16 characters for each file."""
        return {
            "listed": _packed(sorted(self._listed)),
            "gone": [
                [since, _packed(digest for digest, _ in group)]
                for since, group in groupby(self._gone.items(), itemgetter(1))
            ],
            "watched_ms": self._watched_ms,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of `snapshot`, or the older format with paths and file states."""
        if "seen" in state:
            digests = {
                path: _digest(FileStatus(path, size, modified_ms, version))
                for path, (modified_ms, size, version) in state["seen"].items()
            }
            self._listed = {digest for path, digest in digests.items() if path not in state["gone"]}
            self._gone = {digests[path]: 0 for path in state["gone"]}
            return
        self._listed = set(_unpacked(state["listed"]))
        self._gone = {digest: since for since, packed in state["gone"] for digest in _unpacked(packed)}
        self._watched_ms = state["watched_ms"]


def _digest(status: FileStatus) -> bytes:
    known = f"{status.path}\0{status.modified_ms}\0{status.size}\0{status.version}"
    return blake2b(known.encode(errors="surrogateescape"), digest_size=_BYTES).digest()


def _packed(digests: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(digests)).decode()


def _unpacked(packed: str) -> list[bytes]:
    content = base64.b64decode(packed)
    return [content[begin : begin + _BYTES] for begin in range(0, len(content), _BYTES)]


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
