"""Folders in which slots keep the files of their state (the RocksDB backend).

Each attempt of a slot has a separate folder, which is removed when the slot ends. If the process is killed, the folder
is removed when the next slot with the same parent folder starts, or when the cluster ends. Copies for task-local
recovery (`files`) lie beside these folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.common.folders.owned_folder import OwnedFolder, sweep
from penstock.common.folders.private_folder import temporary_folder
from penstock.common.folders.start_folder import absolute
from penstock.taskmanager.local_state.files import sweep_local_files

LOCAL_DIR = "PENSTOCK_LOCAL_DIR"
"""Environment variable for a folder that exists as long as the cluster. A worker sets it for its executors."""
STATE_DIR = "PENSTOCK_STATE_DIR"
"""Environment variable for the folder of state files, if several TaskManagers share a folder."""
_PREFIX = "penstock-state-"


def stacks_folder(local_dir: str) -> str:
    """Return the folder below a TaskManager's folder in which the Python workers offer their stacks (`common.stacks.listener`)."""
    return os.path.join(local_dir, "stacks")


def local_folders(backend_options: Mapping[str, Any], work_dir: str) -> list[str]:
    """Return the absolute folders for state files. Several folders may be on several disks, so the slots are
    distributed over them.

    The paths are absolute, because the working directory of functions may be a folder of their job.
    """
    folders = [path.strip() for path in str(backend_options.get("localdir") or "").split(",") if path.strip()]
    configured = os.environ.get(STATE_DIR) or os.environ.get(LOCAL_DIR)
    return [absolute(folder) for folder in folders or [work_dir or configured or str(temporary_folder())]]


def folders_of_slot(backend_options: Mapping[str, Any], work_dir: str, slot: int) -> list[str]:
    """Return the folders, beginning with the folder that the slot uses."""
    folders = local_folders(backend_options, work_dir)
    first = slot % len(folders)
    return folders[first:] + folders[:first]


def new_state_folder(backend_options: Mapping[str, Any], work_dir: str, slot: int, name: str) -> OwnedFolder:
    return OwnedFolder(folders_of_slot(backend_options, work_dir, slot)[0], _PREFIX, f"{name}-")


def sweep_state(folder: str) -> list[str]:
    """Remove the files of ended processes below the folder when the cluster ends, and return the paths."""
    sweep_local_files(folder, older_than_s=0.0)
    return sweep(folder, _PREFIX)
