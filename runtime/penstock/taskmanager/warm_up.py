"""The function of a Spark job that only starts the processes of tasks (`jobmanager.runners.warm_up`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def discard(partition: int, rows: Iterable[bytes]) -> Iterator[bytes]:
    """Read all rows of a task and return none.

    >>> list(discard(0, [b"a", b"b"]))
    []
    """
    for _ in rows:
        pass
    return iter(())
