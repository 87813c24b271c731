"""Warnings about calls that have no effect, calls that probably have an unintended effect, and deprecated names."""

from __future__ import annotations

import warnings

from penstock.common.program.user_location import user_location

_given: set[str] = set()


class NoEffectWarning(UserWarning):
    """A warning about a call of a PyFlink program for which Penstock does nothing."""


def warn_no_effect(setting: str, reason: str, stacklevel: int = 3) -> None:
    """Warn that `setting` has no effect, and give the reason. Each process warns once."""
    if setting not in _given:
        _given.add(setting)
        warnings.warn(f"{setting} has no effect: {reason}", NoEffectWarning, stacklevel=stacklevel)


class ShortTimeWarning(UserWarning):
    """A warning about a number of milliseconds that is probably meant in seconds."""


SHORT_MS = 100
"""A length of time causes a warning if it is given as a number and is below this many milliseconds."""


def warn_short(length: object, parameter: str) -> None:
    """Warn about a length of time that is a small number. Each process warns once for each length and parameter."""
    if not isinstance(length, int) or not 0 < length < SHORT_MS or f"{parameter} {length}" in _given:
        return
    _given.add(f"{parameter} {length}")
    remedy = f"if you mean seconds, write timedelta(seconds={length}), else timedelta(milliseconds={length})"
    warnings.warn(f"{user_location()}: {parameter} is {length} ms; {remedy}", ShortTimeWarning, stacklevel=4)


def warn_deprecated(name: str, replacement: str, removed_in: str, stacklevel: int = 3) -> None:
    """Warn that the release `removed_in` will not have `name`. docs/versions.md lists all such names.

    `stacklevel` is that of `warnings.warn`. By default the warning names the line that uses the deprecated name.
    """
    warnings.warn(
        f"{name} is deprecated and does not exist from release {removed_in}: use {replacement}",
        DeprecationWarning,
        stacklevel=stacklevel,
    )
