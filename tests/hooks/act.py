"""Misbehaving, in one hook of one program, from a moment on."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

HANG_S = 600.0


def _raise() -> None:
    raise RuntimeError("out of order")


def _exit() -> None:
    sys.exit(3)


def _crash() -> None:
    ctypes.string_at(0)


def _hang() -> None:
    time.sleep(HANG_S)


def _vanish() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


WAYS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "exit": _exit,
    "crash": _crash,
    "hang": _hang,
    "vanish": _vanish,
}


@dataclass(frozen=True)
class Act:
    """Called by every hook with its name."""

    hook: str
    way: str
    since: str = ""
    """Only once this file is there; empty: from the first call on."""

    def __call__(self, hook: str) -> None:
        if hook == self.hook and (not self.since or os.path.exists(self.since)):
            WAYS[self.way]()
