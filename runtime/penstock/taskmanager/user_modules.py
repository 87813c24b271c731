"""The modules of a job in a worker's process, with the search path of the program. A later job does not see these
modules.

A process may serve several jobs of a program, one after the other. The modules of two jobs may have the same names and
different contents. So a new job sets its search path, and removes the modules that only the path of the former job
contains.
"""

from __future__ import annotations

import importlib
import os
import sys


class UserModules:
    """The modules of the jobs in one process."""

    def __init__(self) -> None:
        self._base: list[str] | None = None
        """The search path that the process was started with."""
        self._job_id: str | None = None
        self._added: list[str] = []

    def serve(self, job_id: str, path: list[str]) -> None:
        """Set the search path of the process to `path`, the search path of the job's program."""
        if job_id == self._job_id:
            return
        if self._base is None:
            self._base = list(sys.path)
        base = self._base
        self._forget(base)
        self._job_id = job_id
        self._added = [entry for entry in path if entry not in base]
        # Keep the program's order: entries that the program put before its packages must come first here too.
        sys.path[:] = [*path, *(entry for entry in base if entry not in path)]
        importlib.invalidate_caches()

    def _forget(self, base: list[str]) -> None:
        folders = tuple(os.path.join(entry, "") for entry in self._added)
        if not folders:
            return
        # The folders of the process may lie inside a folder that a job has added.
        kept = tuple(os.path.join(entry, "") for entry in base if entry)
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file is not None and file.startswith(folders) and not file.startswith(kept):
                del sys.modules[name]
