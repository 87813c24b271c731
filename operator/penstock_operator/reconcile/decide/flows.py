"""What the operator does to a job: every operation with its steps, in order.

Which one is begun, and when, when one is given up, and what a step does is said in `operations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.api.status import StepName

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
