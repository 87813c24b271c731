"""The modules of a job in a worker's process: found where the program finds them, and let go with the job.

A process may serve several jobs of a program, one after the other, and they need not have the same modules under the same
names. So a job that comes brings its path, and modules that only the path of the one before led to are forgotten.
"""

from __future__ import annotations

import importlib
import os
import sys


class UserModules:
    """Of one process."""

    def __init__(self) -> None:
        self._base: list[str] | None = None
        """The path that the process was started with."""
        self._job_id: str | None = None
        self._added: list[str] = []

    def serve(self, job_id: str, path: list[str]) -> None:
        """Make the process find what the job's program finds; `path`: the program's."""
        if job_id == self._job_id:
            return
        if self._base is None:
            self._base = list(sys.path)
        base = self._base
        self._forget(base)
        self._job_id = job_id
        self._added = [entry for entry in path if entry not in base]
        # In the program's order: what it put in front of its packages is to be in front of them here, too.
        sys.path[:] = [*path, *(entry for entry in base if entry not in path)]
        importlib.invalidate_caches()

    def _forget(self, base: list[str]) -> None:
        folders = tuple(os.path.join(entry, "") for entry in self._added)
        if not folders:
            return
        kept = tuple(os.path.join(entry, "") for entry in base if entry)  # may lie in a folder that a job has added
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is not None and file.startswith(folders) and not file.startswith(kept):
                del sys.modules[name]
