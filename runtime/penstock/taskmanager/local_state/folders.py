"""Where slots keep files of their state (the RocksDB backend): below which folders, and in whose.

Each attempt of a slot has a folder of its own. It goes with the slot; if the process is killed, the next slot that begins
below the same folder sweeps it, or the end of the cluster does. Beside them are the copies for task-local recovery (`files`).
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
"""Environment variable by which a worker tells its executors a folder that goes with the cluster."""
STATE_DIR = "PENSTOCK_STATE_DIR"
"""The same for files of state, where several TaskManagers share a folder for them."""
_PREFIX = "penstock-state-"


def stacks_folder(local_dir: str) -> str:
    """Where the Python workers below a TaskManager's folder tell what they do (`common.stacks.listener`)."""
    return os.path.join(local_dir, "stacks")


def local_folders(backend_options: Mapping[str, Any], work_dir: str) -> list[str]:
    """Several are on several disks: the slots take turns. Absolute, also where functions work in a folder of their job's."""
    folders = [path.strip() for path in str(backend_options.get("localdir") or "").split(",") if path.strip()]
    own = os.environ.get(STATE_DIR) or os.environ.get(LOCAL_DIR)
    return [absolute(folder) for folder in folders or [work_dir or own or str(temporary_folder())]]


def folders_of_slot(backend_options: Mapping[str, Any], work_dir: str, slot: int) -> list[str]:
    """The slot's own first."""
    folders = local_folders(backend_options, work_dir)
    own = slot % len(folders)
    return folders[own:] + folders[:own]


def new_state_folder(backend_options: Mapping[str, Any], work_dir: str, slot: int, name: str) -> OwnedFolder:
    return OwnedFolder(folders_of_slot(backend_options, work_dir, slot)[0], _PREFIX, f"{name}-")


def sweep_state(folder: str) -> list[str]:
    """Remove what processes that have ended left below the folder, as the cluster ends; returns the paths."""
    sweep_local_files(folder, older_than_s=0.0)
    return sweep(folder, _PREFIX)
