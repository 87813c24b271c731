"""Reference counts of shared files. A file is needed while a holder names it.

A *holder* is a retained checkpoint, a checkpoint in progress, or a savepoint that is being copied. A file's count is
the number of its holders. When the count is zero, `cleaner` deletes the file. The counts exist only in memory, and a
start rebuilds them from the manifests. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from penstock.common.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

Holder = str
"""`chk-<n>` or `savepoint-<request>`."""
_REMEMBERED = 100_000
"""Number of deleted files whose names are kept, to refuse a checkpoint that refers to one of them."""


class SharedStateRegistry:
    """The references to files `shared/<uuid>`.

    >>> registry = SharedStateRegistry()
    >>> registry.register("chk-1", ["shared/a", "shared/b"]); registry.register("chk-2", ["shared/b"])
    >>> registry.counts()
    {'shared/a': 1, 'shared/b': 2}
    >>> registry.release("chk-1")
    ['shared/a']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paths_by_holder: dict[Holder, set[str]] = {}
        self._counts: Counter[str] = Counter()
        self._released: OrderedDict[str, None] = OrderedDict()
        self._expected: tuple[str, ...] = ()

    def register(self, holder: Holder, paths: Iterable[str]) -> None:
        """Add these files to the files of the holder.

        Raises:
            StorageError: a file was already released for deletion. A snapshot that refers to it cannot be restored.
        """
        wanted = set(paths)
        with self._lock:
            lost = sorted(path for path in wanted if path in self._released)
            if lost:
                raise StorageError(
                    f"{holder} refers to {lost[0]}, which was deleted because no checkpoint needed it"
                    + (f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""),
                    remedy="report this defect of the state backend: it may only refer to files of a confirmed checkpoint",
                )
            paths = self._paths_by_holder.setdefault(holder, set())
            new = wanted - paths
            paths |= new
            self._counts.update(new)

    def release(self, holder: Holder) -> list[str]:
        """Remove the holder. Return the files that no holder needs now. The caller must queue these files for deletion."""
        with self._lock:
            garbage = []
            for path in self._paths_by_holder.pop(holder, set()):
                self._counts[path] -= 1
                if self._counts[path] == 0:
                    del self._counts[path]
                    garbage.append(path)
                    self._released[path] = None
            while len(self._released) > _REMEMBERED:
                self._released.popitem(last=False)
            return sorted(garbage)

    def expect(self, prefix: str) -> None:
        """Protect files with this prefix while they are written. The writer registers or discards them later."""
        with self._lock:
            self._expected = (*self._expected, prefix)

    def is_needed(self, path: str) -> bool:
        with self._lock:
            return path in self._counts or path.startswith(self._expected)

    def holders(self) -> list[Holder]:
        with self._lock:
            return sorted(self._paths_by_holder)

    def counts(self) -> dict[str, int]:
        """Return the counts by path. Files without a reference are left out."""
        with self._lock:
            return {path: self._counts[path] for path in sorted(self._counts)}
