from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from penstock.common import native_memory


def test_what_was_thrown_away_goes_back_to_the_system() -> None:
    """Small pieces with one at the end that is kept: nothing would go back by itself."""
    program = """if True:
        import ctypes
        from penstock.common.native_memory import give_back
        def mib():
            return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        pieces = [libc.malloc(60_000) for _ in range(1_000)]
        for piece in pieces:
            ctypes.memset(piece, 1, 60_000)
        for piece in pieces[:-1]:
            libc.free(piece)
        kept = mib()
        give_back()
        assert kept - mib() > 40, (kept, mib())
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_system_that_cannot_be_told_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    native_memory.give_back()
