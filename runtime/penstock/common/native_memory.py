"""Memory that C libraries have freed and keep."""

from __future__ import annotations

import contextlib


def give_back() -> None:
    """Give the system what was read and thrown away meanwhile. Only glibc keeps such memory, and can be told."""
    import ctypes  # a MB, for those who have it to spare

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
