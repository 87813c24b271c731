"""Copies of state files on the disk of the TaskManager that wrote or fetched them: what a restore need not fetch (task-local recovery).

The copies are hard links of RocksDB's files, named after the files in checkpoint storage, which never change. Each operator of each subtask
has a folder for an attempt; what it holds is what checkpoints from the newest complete one on name. A process that is killed leaves
its folders. Tasks of the job's next attempt look into all folders of the job below theirs, so also those that get another part of the key groups;
once its first checkpoint is complete, folders of former attempts go. Those of its own attempt never do: the tasks beside a killed one live for a
moment longer, and hear of the checkpoint that the next attempt begins from. A copy is used only if its size and checksum are those
that the handle names; without one, or with a wrong one, the file comes from storage, and nobody need know.
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
from penstock.state.backend import FileRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.state.backend import StateFileReader, StateFileWriter

logger = logging.getLogger(__name__)

_OF_JOB = "penstock-local-"
_OF_TASK = "files-"
FORGET_S = 600.0
"""Copies of a job that has no task here are kept that long: it may be between two attempts.

Counted from when a sweep last saw one, which is the time of change of the job's folder: how often copies change is up to the checkpoint interval."""
SWEEP_S = 60.0
"""Between two sweeps of a TaskManager's process."""
_LEAST_FREE = 0.05
"""Share of the disk; with less of it free nothing is kept."""


class LocalStateFiles:
    """The copies of one operator in one subtask of an attempt. Thread-safe.

    Args:
        parents: folders that TaskManager's slots keep their state below; the first one is this slot's.
        task: tells the operator and subtask apart.
    """

    def __init__(self, parents: Sequence[str], job_id: str, attempt: int, task: str) -> None:
        self.used = self.fetched = 0
        """Files that were here, and that were not."""
        self._jobs = [os.path.join(parent, _OF_JOB + job_id) for parent in parents]
        self._of_attempt = f"{_OF_TASK}{attempt}-"
        self._folder = _new_folder(self._jobs[0], f"{attempt}-{task}")
        """None: nothing is kept."""
        self._lock = threading.Lock()
        self._uploaded: dict[str, int] = {}
        """Checkpoint that a file was written for, until its handle is noted."""
        self._named: dict[int, set[str]] = {}

    def writer(self, files: StateFileWriter, checkpoint_id: int) -> StateFileWriter:
        return _KeepingWriter(self, files, checkpoint_id)

    def reader(self, files: StateFileReader) -> StateFileReader:
        return _LocalReader(self, files)

    def note(self, checkpoint_id: int, handle: Mapping[str, Any]) -> None:
        """The handle of a checkpoint, or what was restored."""
        names = {_name(FileRef.of_json(entry)) for entry in handle.get("files", ())}
        with self._lock:
            self._named.setdefault(checkpoint_id, set()).update(names)

    def completed(self, checkpoint_id: int) -> None:
        """Only what this checkpoint and later ones name is needed, and nothing of former attempts."""
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
        """The attempt is over; the copies stay for the next."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.utime(self._jobs[0])
            self._folder.let_go()

    def _remove(self, unwanted: Callable[[str], bool]) -> None:
        for entry in [] if self._folder is None else os.scandir(self._folder.path):
            if not OwnedFolder.is_mark(entry.name) and unwanted(entry.name):
                os.unlink(entry.path)

    def keep(self, ref: FileRef, local_path: str, checkpoint_id: int) -> None:
        """Link a file that lies in storage now; without it a restore takes longer, so nothing fails here."""
        if self._folder is None:
            return
        with self._lock, contextlib.suppress(OSError):
            usage = shutil.disk_usage(self._folder.path)
            if usage.free < usage.total * _LEAST_FREE:
                self._remove(lambda name: True)
                return
            self._uploaded[_name(ref)] = checkpoint_id
            os.link(local_path, os.path.join(self._folder.path, _name(ref)))

    def find(self, ref: FileRef, local_path: str) -> bool:
        """Put a copy of the file there, if there is a good one."""
        for path in self._copies(_name(ref)):
            with contextlib.suppress(OSError):
                if os.path.getsize(path) == ref.size and file_checksum(path) == ref.checksum:
                    os.link(path, local_path)
                    return True
                logger.warning("%s is not what was written; %s is fetched from storage", path, ref.path)
        return False

    def _copies(self, name: str) -> list[str]:
        found = []
        for job in self._jobs:
            with contextlib.suppress(OSError), os.scandir(job) as folders:
                found += [path for folder in folders if os.path.exists(path := os.path.join(folder.path, name))]
        return found


class _KeepingWriter:
    """`StateFileWriter` that keeps what it uploads."""

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
    """`StateFileReader` that takes copies where there are any, and keeps what it had to fetch."""

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
    """
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
    """Remove the copies of jobs that have had no task here for a while.

    Args:
        but_of: id of a job whose tasks are about to begin.
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
        os.rmdir(job.path)  # a task that has just begun keeps its folder there


class LocalFilesSweeper:
    """Sweeps in a thread while a TaskManager lives: after the last job that has copies no other slot begins."""

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
        """Also if it was never started."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            for folder in self._folders:
                sweep_local_files(folder, older_than_s=self._older_than_s)
