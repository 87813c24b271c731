"""The operations of the operator (Upgrade, Rescale, Suspend, …; all in `flows`): when one is begun and given up, and its steps.

`begin` says which one there is a reason for, `abandon` when one that goes on is out of date. The others are the steps that
operations are made of: one pure function each, from a context to a decision.

A step looks whether what it wants is already so (then `advance`), whether it can be done (then `act`), or what it
waits for (then `wait`). It never assumes that its own last action worked: it looks.
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
"""Name of a step → what it does."""

__all__ = ["STEPS"]
