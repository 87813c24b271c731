"""What a job's own code prints and logs, in the log of its TaskManager.

Spark writes what executors and their Python workers say to files below the Worker's folder, where nobody who has only
`kubectl logs` will look. They are followed and copied line by line, with the number of the executor in front.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

POLL_S = 0.5
_CHUNK = 1 << 20
_CHUNKS = 64
"""Most that is copied of one file before the others have their turn."""
_LONGEST = 64 * 1024
"""A line without an end is copied in pieces of that many bytes."""
_SPARKS_OWN = (b"Spark Executor Command:", b"========================")


class ExecutorLogs:
    """Follows the logs below a Worker's folder.

    Args:
        folder: the Worker's; executors write to `<folder>/<application>/<executor>/stdout` and `stderr`.
        write: takes lines, with their ends.
    """

    def __init__(self, folder: str | Path, write: Callable[[bytes], object] | None = None) -> None:
        self._folder = Path(folder)
        self._write = write or _to_stdout
        self._files: dict[Path, _Followed] = {}

    def start(self) -> None:
        """Copy from a thread of its own until the process ends."""
        threading.Thread(target=self._run, name="executor-logs", daemon=True).start()

    def _run(self) -> None:
        ended = threading.Event()
        while not ended.wait(POLL_S):
            self.copy()

    def copy(self) -> None:
        """Copy what is new. Files that are gone are forgotten; one that was put in another's place is begun anew."""
        found = sorted(self._folder.glob("app-*/*/std*"))
        for path in found:
            if path.name in ("stdout", "stderr"):
                self._copy(path)
        for path in self._files.keys() - set(found):
            self._files.pop(path).file.close()

    def _copy(self, path: Path) -> None:
        try:
            inode = path.stat().st_ino
            followed = self._files.get(path)
            if followed is not None and followed.inode != inode:
                self._drain(path, followed)
                followed.file.close()
                followed = None
            if followed is None:
                followed = self._files[path] = _Followed(path.open("rb"))
            self._drain(path, followed)
        except OSError:  # it has just been removed
            return

    def _drain(self, path: Path, followed: _Followed) -> None:
        prefix = f"[{path.parent.name}] ".encode()
        for _ in range(_CHUNKS):
            lines = followed.lines()
            for line in lines:
                if not line.startswith(_SPARKS_OWN) and line != b"\n":
                    self._write(prefix + line)
            if not lines:
                return


class _Followed:
    """A file that grows."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.inode = os.fstat(file.fileno()).st_ino
        self._rest = b""

    def lines(self) -> list[bytes]:
        """Whole lines behind the last call's, at most a chunk of them."""
        *whole, self._rest = (self._rest + self.file.read(_CHUNK)).split(b"\n")
        if len(self._rest) > _LONGEST:
            whole, self._rest = [*whole, self._rest], b""
        return [line + b"\n" for line in whole]


def _to_stdout(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
