"""A wall clock that tests can set, for a process and all of its children."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")
_SHIFT = struct.Struct("=q")


class SettableClock:
    """A shift of the wall clock of processes that have its `environment`. Needs a C compiler.

    Args:
        folder: for the compiled library and the file with the shift.
    """

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "clock.so", folder / "clock"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)], check=True)
        self.shift_s = 0
        self._file.write_bytes(_SHIFT.pack(0))
        self.environment = {"LD_PRELOAD": str(library), "SOAK_CLOCK": str(self._file)}

    def set(self, shift_s: int) -> None:
        """Set the clock to `shift_s` seconds after the machine's clock."""
        with self._file.open("r+b") as file:
            file.write(_SHIFT.pack(shift_s))
        self.shift_s = shift_s
