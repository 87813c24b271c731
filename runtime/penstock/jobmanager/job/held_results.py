"""Values of `execute_and_collect` on their way to the program: given out once, when nothing can take them back.

With checkpoints a value is given out when the first checkpoint behind it is complete; values since then are dropped at a
failover, because they come again. Without checkpoints a failed job does not restart, so values are given out at once.
"""

from __future__ import annotations

Results = list[tuple[str, list[bytes]]]


class HeldResults:
    """Used by the JobMaster's thread.

    >>> held = HeldResults(checkpointing=True)
    >>> held.hold("sink", [b"a"]); held.barrier(1); held.hold("sink", [b"b"]); held.end_of_epoch()
    []
    >>> held.completed(1)
    [('sink', [b'a'])]
    """

    def __init__(self, checkpointing: bool) -> None:
        self._checkpointing = checkpointing
        self._current: Results = []
        self._by_checkpoint: dict[int, Results] = {}

    def hold(self, uid: str, values: list[bytes]) -> None:
        self._current.append((uid, values))

    def barrier(self, checkpoint_id: int) -> None:
        """Everything held so far lies before this checkpoint."""
        self._by_checkpoint[checkpoint_id] = self._current
        self._current = []

    def end_of_epoch(self) -> Results:
        if self._checkpointing:
            return []
        given, self._current = self._current, []
        return given

    def completed(self, checkpoint_id: int) -> Results:
        """Also of earlier checkpoints, which were abandoned: this one covers them."""
        given: Results = []
        for earlier in sorted(i for i in self._by_checkpoint if i <= checkpoint_id):
            given += self._by_checkpoint.pop(earlier)
        return given

    def drop(self) -> None:
        self._current = []
        self._by_checkpoint = {}
