"""One warning for each thing that is accepted and has no effect here."""

from __future__ import annotations

import warnings

_given: set[str] = set()


class NoEffectWarning(UserWarning):
    """A call that a PyFlink program may make and that Penstock needs nothing done for."""


def warn_no_effect(what: str, why: str) -> None:
    """Warns once in the life of the process that `what` has no effect, and says why."""
    if what not in _given:
        _given.add(what)
        warnings.warn(f"{what} has no effect: {why}", NoEffectWarning, stacklevel=3)
