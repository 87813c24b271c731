"""The event-time clock of an operator as part of its snapshot.

After a restore the sources send lower watermarks first. Without the saved clock, an operator would accept records that
were late before the failure. Its results would differ from the results of a run without a failure. So a restored clock
never goes back.

Usually all subtasks have the same watermark when a checkpoint is taken. If their watermarks differ, the smallest one is
restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from penstock.functions.operator_context import OperatorContext


class SavedClock:
    """The clock in operator state.

    Args:
        context: context of an operator that is opening. The constructor also sets the clock of the operator's timers.
        name: name of the state.
    """

    def __init__(self, context: OperatorContext, name: str) -> None:
        self._saved = context.operator_state.get_union_list_state(name, int)
        self.restored = min(self._saved, default=MIN_TIMESTAMP)
        """The clock at the snapshot (ms)."""
        timers = context.timers
        if timers is not None:
            self.restored = timers.current_watermark = max(timers.current_watermark, self.restored)

    def save(self, watermark: int) -> None:
        """Save the clock in the current snapshot.

        The end of time is not saved, because a job that starts from the savepoint of a drained job has new records.
        """
        self._saved[:] = [MIN_TIMESTAMP if watermark == MAX_TIMESTAMP else watermark]
