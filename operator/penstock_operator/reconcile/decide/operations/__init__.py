"""The operations of the operator, such as Upgrade, Rescale and Suspend. `flows` lists them all.

`begin` decides which operation is necessary. `abandon` decides whether the operation in progress is out of date. The
other modules contain the steps of operations. Each step is a pure function from a context to a decision.

A step checks if its goal is already reached (then `advance`), if it can act (then `act`), or what it must wait for
(then `wait`). It never assumes that its own last action worked, but uses the observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.decide.operations.dispose import dispose
from penstock_operator.reconcile.decide.operations.prepare import prepare
from penstock_operator.reconcile.decide.operations.prove import check, verify
from penstock_operator.reconcile.decide.operations.rescale import add_workers, remove_workers, rescale
from penstock_operator.reconcile.decide.operations.start import start, watch
from penstock_operator.reconcile.decide.operations.stop import seal, stop, teardown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision

STEPS: Mapping[str, Callable[[Context], Decision]] = {
    "Verify": verify,
    "Check": check,
    "Prepare": prepare,
    "Stop": stop,
    "Seal": seal,
    "Teardown": teardown,
    "Start": start,
    "Watch": watch,
    "AddWorkers": add_workers,
    "Rescale": rescale,
    "RemoveWorkers": remove_workers,
    "Dispose": dispose,
}
"""Step functions by the name of the step."""

__all__ = ["STEPS"]
