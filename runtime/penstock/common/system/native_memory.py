"""Memory that C libraries have freed but not returned to the system."""

from __future__ import annotations

import contextlib


def trim_heap() -> None:
    """Return freed memory to the system. Only glibc keeps such memory and has a function for it."""
    import ctypes  # takes 1 MB, so only callers of this function import it

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
