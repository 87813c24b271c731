"""One warning for each call that is accepted but has no effect here."""

from __future__ import annotations

import warnings

_given: set[str] = set()


class NoEffectWarning(UserWarning):
    """A warning about a call of a PyFlink program for which Penstock does nothing."""


def warn_no_effect(what: str, why: str) -> None:
    """Warn that `what` has no effect, and give the reason. Each process warns once."""
    if what not in _given:
        _given.add(what)
        warnings.warn(f"{what} has no effect: {why}", NoEffectWarning, stacklevel=3)
