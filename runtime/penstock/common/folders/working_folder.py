"""The working directory of a process that runs user functions: one of its own, if the job has archives, else the one it was started in.

What the engine finds by a relative path is relative to where the program was started, whatever functions see (`start_folder`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from penstock.common.errors import InvalidJob
from penstock.common.folders import start_folder
from penstock.common.folders.owned_folder import OwnedFolder

_own: OwnedFolder | None = None
_IN_IT = "work"
"""The folder beside what an `OwnedFolder` has for itself."""


def work_in(folder: str, own: Callable[[], OwnedFolder] | None = None) -> None:
    """Functions work in a folder of this process's from now on; what they had before is removed.

    Args:
        folder: with links to what they are to find; "": they work where the process was started.
        own: makes a new folder, where the links are copied into.

    Raises:
        InvalidJob: there is no such folder on this machine.
    """
    _leave()
    if not folder or own is None:
        return
    try:
        _enter(folder, own)
    except OSError as error:
        _leave()
        raise InvalidJob(
            f"add_python_archive: what the program has unpacked into {folder} is not where this worker runs ({error.strerror})",
            remedy="put the archive's content into the job's image, and read it by an absolute path",
        ) from error


def _enter(folder: str, own: Callable[[], OwnedFolder]) -> None:
    global _own
    os.stat(folder)
    _own = own()
    work = os.path.join(_own.path, _IN_IT)
    shutil.copytree(folder, work, symlinks=True)
    start_folder.left = os.getcwd()
    os.chdir(work)


def _leave() -> None:
    global _own
    if start_folder.left is not None:
        os.chdir(start_folder.left)
        start_folder.left = None
    if _own is not None:
        _own.remove()
        _own = None
