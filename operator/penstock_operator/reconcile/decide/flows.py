"""The operations on a job, each with its steps in order.

`operations` defines when an operation starts and when it is given up, and what each step does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock_operator.api.status.operation import Operation, StepName

FLOWS: dict[str, tuple[StepName, ...]] = {
    "Deploy": ("Verify", "Check", "Start", "Watch"),
    "Upgrade": ("Check", "Prepare", "Stop", "Seal", "Teardown", "Start", "Watch"),
    "Redeploy": ("Verify", "Check", "Teardown", "Start", "Watch"),
    "Suspend": ("Stop", "Seal", "Teardown"),
    "Resume": ("Verify", "Check", "Start", "Watch"),
    "Rollback": ("Teardown", "Check", "Start", "Watch"),
    "Recover": ("Seal", "Teardown", "Start", "Watch"),
    "Rescale": ("AddWorkers", "Rescale", "RemoveWorkers"),
    "Delete": ("Stop", "Seal", "Teardown", "Dispose"),
}
"""The steps of every operation, in order."""

_HARMLESS: frozenset[StepName] = frozenset({"Verify", "Check", "AddWorkers", "Rescale", "RemoveWorkers", "Watch"})


def leaves_alone(op: Operation) -> bool:
    """Return whether the step in progress does not change the running incarnation, so that the incarnation still
    needs its usual upkeep.

    The check of a rollback comes after the stop of the failed incarnation. Nothing runs at that time.
    """
    if op.kind == "Delete" or (op.kind, op.step) == ("Rollback", "Check"):
        return False
    return op.step in _HARMLESS or (op.step == "Stop" and op.trigger_id is None and op.standby is None)


def is_waiting(op: Operation, now: datetime, patience: timedelta) -> bool:
    """Return whether the operation has reported what it waits for, or its step has taken longer than `patience`."""
    return op.blocked is not None or now - op.step_since >= patience
