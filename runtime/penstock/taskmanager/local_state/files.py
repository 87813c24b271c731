"""Copies of state files on the disk of the TaskManager that wrote or fetched them, for task-local recovery.

The copies are hard links of RocksDB's files. They have the names of the files in checkpoint storage, whose content
never changes. Each operator of each subtask has a folder per attempt. The folder holds the files of the newest complete
checkpoint and of later checkpoints.

A killed process leaves its folders. Tasks of the job's next attempt search all folders of the job below their parent
folders. So a subtask with other key groups than before finds its files too.

When a checkpoint is complete, the tasks remove the folders of former attempts. They keep the folders of the current
attempt, because the next attempt may need them. For example, a task of a failed attempt may live a moment longer. It
may still be notified of the checkpoint from which the next attempt starts.

A task uses a copy only if its size and checksum match the handle. Otherwise the task downloads the file from storage,
without an error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.checksum import file_checksum
from penstock.common.folders.owned_folder import OwnedFolder, is_owned, sweep
from penstock.state.files import FileRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.state.files import StateFileReader, StateFileWriter

logger = logging.getLogger(__name__)

_OF_JOB = "penstock-local-"
_OF_TASK = "files-"
FORGET_S = 600.0
"""Seconds for which the copies of a job are kept while it has no task on this TaskManager.

The job may be between two attempts. The time counts from the newest modification time of the job's folder and of the
folders in it. A sweep that sees a task sets the modification time of the job's folder. New copies are not a reliable
sign of a running task, because the checkpoint interval decides how often they appear.
"""
SWEEP_S = 60.0
"""Seconds between two sweeps of a TaskManager's process."""
_MIN_FREE = 0.05
"""Minimum free share of the disk. If less is free, no copies are kept."""


class LocalStateFiles:
    """The copies of one operator in one subtask of an attempt. Thread-safe.

    parents: folders below which the TaskManager's slots keep their state. The first one belongs to this slot.
    task: name of the operator and subtask.
    """

    def __init__(self, parents: Sequence[str], job_id: str, attempt: int, task: str) -> None:
        self.used = self.fetched = 0
        """Number of files that a copy provided, and of files that came from storage."""
        self._jobs = [os.path.join(parent, _OF_JOB + job_id) for parent in parents]
        self._of_attempt = f"{_OF_TASK}{attempt}-"
        self._folder = _new_folder(self._jobs[0], f"{attempt}-{task}")
        """The folder of the copies, or None if no copies are kept."""
        self._lock = threading.Lock()
        self._uploaded: dict[str, int] = {}
        """Checkpoint for which each file was written. `completed` and `aborted` remove entries."""
        self._named: dict[int, set[str]] = {}

    def writer(self, files: StateFileWriter, checkpoint_id: int) -> StateFileWriter:
        return _CopyingWriter(self, files, checkpoint_id)

    def reader(self, files: StateFileReader) -> StateFileReader:
        return _LocalReader(self, files)

    def note(self, checkpoint_id: int, handle: Mapping[str, Any]) -> None:
        """Remember the files in the handle of a checkpoint, or in the handle that was restored."""
        names = {_name(FileRef.of_json(entry)) for entry in handle.get("files", ())}
        with self._lock:
            self._named.setdefault(checkpoint_id, set()).update(names)

    def completed(self, checkpoint_id: int) -> None:
        """Remove copies that neither this checkpoint nor a later checkpoint names, and the copies of former
        attempts."""
        with self._lock:
            self._named = {id: names for id, names in self._named.items() if id >= checkpoint_id}
            self._uploaded = {name: id for name, id in self._uploaded.items() if id > checkpoint_id}
            needed = set(self._uploaded).union(*self._named.values())
            with contextlib.suppress(OSError):
                self._remove(lambda name: name not in needed)
        for folder in self._jobs:
            with contextlib.suppress(OSError):
                sweep(folder, _OF_TASK, but=self._of_attempt)

    def aborted(self, checkpoint_id: int) -> None:
        with self._lock:
            self._named.pop(checkpoint_id, None)
            self._uploaded = {name: id for name, id in self._uploaded.items() if id != checkpoint_id}

    def close(self) -> None:
        """End the attempt. The copies remain for the next attempt."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.utime(self._jobs[0])
            self._folder.release_lock()

    def _remove(self, unwanted: Callable[[str], bool]) -> None:
        for entry in [] if self._folder is None else os.scandir(self._folder.path):
            if not OwnedFolder.is_mark(entry.name) and unwanted(entry.name):
                os.unlink(entry.path)

    def keep(self, ref: FileRef, local_path: str, checkpoint_id: int) -> None:
        """Link a file that is in storage. Errors are ignored, because a missing copy only makes a restore slower."""
        if self._folder is None:
            return
        with self._lock, contextlib.suppress(OSError):
            usage = shutil.disk_usage(self._folder.path)
            if usage.free < usage.total * _MIN_FREE:
                self._remove(lambda name: True)
                return
            self._uploaded[_name(ref)] = checkpoint_id
            os.link(local_path, os.path.join(self._folder.path, _name(ref)))

    def find(self, ref: FileRef, local_path: str) -> bool:
        """Link a valid copy of the file to the path. Return False if no valid copy exists."""
        for path in self._copies(_name(ref)):
            with contextlib.suppress(OSError):
                if os.path.getsize(path) == ref.size and file_checksum(path) == ref.checksum:
                    os.link(path, local_path)
                    return True
                logger.warning("%s has changed since it was written. %s is fetched from storage", path, ref.path)
        return False

    def _copies(self, name: str) -> list[str]:
        found = []
        for job in self._jobs:
            with contextlib.suppress(OSError), os.scandir(job) as folders:
                found += [path for folder in folders if os.path.exists(path := os.path.join(folder.path, name))]
        return found


class _CopyingWriter:
    """A `StateFileWriter` that keeps copies of the files it uploads."""

    def __init__(self, local: LocalStateFiles, files: StateFileWriter, checkpoint_id: int) -> None:
        self._local = local
        self._checkpoint_id = checkpoint_id
        self._files = files
        self.write = files.write

    def upload(self, local_path: str) -> FileRef:
        ref = self._files.upload(local_path)
        self._local.keep(ref, local_path, self._checkpoint_id)
        return ref


class _LocalReader:
    """A `StateFileReader` that uses copies if they exist, and keeps copies of the files it fetches."""

    def __init__(self, local: LocalStateFiles, files: StateFileReader) -> None:
        self._local = local
        self._files = files
        self.read = files.read

    def download(self, ref: FileRef, local_path: str) -> None:
        if self._local.find(ref, local_path):
            self._local.used += 1
        else:
            self._files.download(ref, local_path)
            self._local.fetched += 1
        self._local.keep(ref, local_path, 0)


def _name(ref: FileRef) -> str:
    """Return the name of the copy.

    >>> _name(FileRef("shared/ab", 1, "")), _name(FileRef("shared/ab", 1, "", offset=7))
    ('ab', 'ab@7')
    """
    name = os.path.basename(ref.path)
    return name if ref.offset is None else f"{name}@{ref.offset}"


def _new_folder(parent: str, name: str) -> OwnedFolder | None:
    try:
        return OwnedFolder(parent, _OF_TASK, f"{name}-", sweeps=False)
    except OSError as error:
        logger.warning("no copies of state files are kept below %s: %s", parent, error)
        return None


def sweep_local_files(parent: str, *, older_than_s: float = FORGET_S, but_of: str = "") -> None:
    """Remove the copies of jobs that have had no task here for `older_than_s` seconds.

    Args:
        but_of: id of a job whose tasks are about to start. Its copies are kept.
    """
    with contextlib.suppress(OSError), os.scandir(parent) as jobs:
        for job in jobs:
            with contextlib.suppress(OSError):
                if job.name.startswith(_OF_JOB) and job.is_dir(follow_symlinks=False):
                    _sweep_job(job, older_than_s, has_tasks=job.name == _OF_JOB + but_of)


def _sweep_job(job: os.DirEntry[str], older_than_s: float, *, has_tasks: bool) -> None:
    tasks = [entry for entry in os.scandir(job.path) if entry.is_dir(follow_symlinks=False)]
    if has_tasks or any(is_owned(entry.path) for entry in tasks):
        os.utime(job.path)
        return
    newest = max(entry.stat(follow_symlinks=False).st_mtime for entry in [job, *tasks])
    if time.time() - newest >= older_than_s:
        for entry in tasks:
            shutil.rmtree(entry.path, ignore_errors=True)
        os.rmdir(job.path)  # fails if a task has just created a folder there


class LocalFilesSweeper:
    """A thread that sweeps while a TaskManager lives.

    Slots sweep when they start, but after the last job no slot may start.
    """

    def __init__(self, folders: Sequence[str], *, every_s: float = SWEEP_S, older_than_s: float = FORGET_S) -> None:
        self._folders = folders
        self._every_s = every_s
        self._older_than_s = older_than_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-sweep", daemon=True)

    def start(self) -> LocalFilesSweeper:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread. Do nothing if it was not started."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            for folder in self._folders:
                sweep_local_files(folder, older_than_s=self._older_than_s)
