"""Which shared files are needed, by counting who names them (S43, example E10).

A *holder* is whoever needs files: a retained checkpoint, a checkpoint in progress, a savepoint that is being copied. A
file's count is the number of its holders; at zero it is garbage, to be deleted by `cleaner`. The counts live in memory only
and are rebuilt from the manifests at start. Thread-safe.
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
"""How many names of deleted files are remembered, to refuse a checkpoint that refers to one."""


class SharedStateRegistry:
    """Counts references to files `shared/<uuid>`.

    >>> registry = SharedStateRegistry()
    >>> registry.register("chk-1", ["shared/a", "shared/b"]); registry.register("chk-2", ["shared/b"])
    >>> registry.counts()
    {'shared/a': 1, 'shared/b': 2}
    >>> registry.release("chk-1")
    ['shared/a']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Holder, set[str]] = {}
        self._counts: Counter[str] = Counter()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._expected: tuple[str, ...] = ()

    def register(self, holder: Holder, paths: Iterable[str]) -> None:
        """The holder needs these files, besides those it named before.

        Raises:
            StorageError: one of them was given up for deletion before; a snapshot that refers to it cannot be restored.
        """
        wanted = set(paths)
        with self._lock:
            lost = sorted(path for path in wanted if path in self._gone)
            if lost:
                raise StorageError(
                    f"{holder} refers to {lost[0]}, which was deleted when no checkpoint needed it any more"
                    + (f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""),
                    remedy="a defect of the state backend: it may only build on a checkpoint that was confirmed",
                )
            held = self._held.setdefault(holder, set())
            new = wanted - held
            held |= new
            self._counts.update(new)

    def release(self, holder: Holder) -> list[str]:
        """The holder needs nothing any more. Returns the files that nobody needs now; the caller must have them deleted."""
        with self._lock:
            garbage = []
            for path in self._held.pop(holder, set()):
                self._counts[path] -= 1
                if self._counts[path] == 0:
                    del self._counts[path]
                    garbage.append(path)
                    self._gone[path] = None
            while len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
            return sorted(garbage)

    def expect(self, prefix: str) -> None:
        """Files whose names begin so are being written; whoever writes them will register them, or give them up."""
        with self._lock:
            self._expected = (*self._expected, prefix)

    def is_needed(self, path: str) -> bool:
        with self._lock:
            return path in self._counts or path.startswith(self._expected)

    def holders(self) -> list[Holder]:
        with self._lock:
            return sorted(self._held)

    def counts(self) -> dict[str, int]:
        """By path; files with no reference are not in it."""
        with self._lock:
            return {path: self._counts[path] for path in sorted(self._counts)}
