"""Results of `execute_and_collect` before their delivery to the program. Each result is delivered once, when no failover can revoke it.

If checkpointing is enabled, a result is delivered when the first checkpoint after the result is complete. A failover drops the results
after the restored checkpoint, because the next attempt produces them again. Without checkpoints a failed job does not restart, so results
are delivered at once.
"""

from __future__ import annotations

Results = list[tuple[str, list[bytes]]]


class PendingResults:
    """Pending results. The JobMaster's thread uses it.

    >>> pending = PendingResults(checkpointing=True)
    >>> pending.add("sink", [b"a"]); pending.barrier(1); pending.add("sink", [b"b"]); pending.end_of_epoch()
    []
    >>> pending.completed(1)
    [('sink', [b'a'])]
    """

    def __init__(self, checkpointing: bool) -> None:
        self._checkpointing = checkpointing
        self._current: Results = []
        self._by_checkpoint: dict[int, Results] = {}

    def add(self, uid: str, values: list[bytes]) -> None:
        self._current.append((uid, values))

    def barrier(self, checkpoint_id: int) -> None:
        """Record that all results so far are before this checkpoint."""
        self._by_checkpoint[checkpoint_id] = self._current
        self._current = []

    def end_of_epoch(self) -> Results:
        if self._checkpointing:
            return []
        results, self._current = self._current, []
        return results

    def completed(self, checkpoint_id: int) -> Results:
        """Return the results before this checkpoint. They include the results before earlier, aborted checkpoints."""
        results: Results = []
        for earlier in sorted(i for i in self._by_checkpoint if i <= checkpoint_id):
            results += self._by_checkpoint.pop(earlier)
        return results

    def drop(self) -> None:
        self._current = []
        self._by_checkpoint = {}
