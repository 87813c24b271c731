from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from penstock.common.system import native_memory


def test_freed_memory_is_returned_to_the_system() -> None:
    """The last of many small pieces is kept. Without the call, the system would get nothing back."""
    program = """if True:
        import ctypes
        from penstock.common.system.native_memory import trim_heap
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
        trim_heap()
        assert kept - mib() > 40, (kept, mib())
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unsupported_system_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    native_memory.trim_heap()
