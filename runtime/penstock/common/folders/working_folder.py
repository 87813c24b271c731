"""The working directory of a process that runs user functions.

The working directory is a separate folder if the job has archives. Otherwise it is the folder in which the process was
started.

The engine resolves relative paths against the folder in which the program was started (`start_folder`), not against the
working directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from penstock.common.errors import InvalidJob
from penstock.common.folders import start_folder
from penstock.common.folders.owned_folder import OwnedFolder

_own: OwnedFolder | None = None
_SUBFOLDER = "work"
"""Name of the working directory inside an `OwnedFolder`, next to the folder's own files."""


def work_in(folder: str, create_folder: Callable[[], OwnedFolder] | None = None) -> None:
    """Let functions work in a new folder of this process, and remove their previous folder.

    Args:
        folder: a folder with links to the files of the functions; "" means that the functions work in the folder in which the
            process was started.
        create_folder: creates the new folder. The links are then copied into it.

    Raises:
        InvalidJob: this machine does not have the folder.
    """
    _leave()
    if not folder or create_folder is None:
        return
    try:
        _enter(folder, create_folder)
    except OSError as error:
        _leave()
        raise InvalidJob(
            f"add_python_archive: the program unpacked archives into {folder}, which this worker cannot read ({error.strerror})",
            remedy="add the content of the archive to the image of the job, and read it by an absolute path",
        ) from error


def _enter(folder: str, create_folder: Callable[[], OwnedFolder]) -> None:
    global _own
    os.stat(folder)
    _own = create_folder()
    work = os.path.join(_own.path, _SUBFOLDER)
    shutil.copytree(folder, work, symlinks=True)
    start_folder.folder = os.getcwd()
    os.chdir(work)


def _leave() -> None:
    global _own
    if start_folder.folder is not None:
        os.chdir(start_folder.folder)
        start_folder.folder = None
    if _own is not None:
        _own.remove()
        _own = None
