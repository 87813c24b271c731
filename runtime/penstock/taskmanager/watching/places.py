"""Whose work a stack of this process is: the job, the vertex and the subtask that its frames or its tasks name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

from penstock.common.stacks.listener import listen
from penstock.common.stacks.sampling import Place
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.local_state.folders import LOCAL_DIR, stacks_folder
from penstock.taskmanager.subtask import Subtask

logger = logging.getLogger(__name__)

_is_listening = False


def tell_stacks(tasks: Callable[[], Iterable[LevelTask]]) -> None:
    """From now on whoever runs the TaskManager may ask what this process does. Later calls do nothing.

    Args:
        tasks: those that are in this process at the moment; called from another thread.
    """
    global _is_listening
    local_dir = os.environ.get(LOCAL_DIR)
    if _is_listening or not local_dir:
        return
    _is_listening = True
    try:
        listen(stacks_folder(local_dir), lambda frames: place_of(frames, tasks()))
    except OSError as error:
        logger.warning("stacks of this process cannot be asked for: %s", error)


def place_of(frames: Sequence[FrameType], tasks: Iterable[LevelTask]) -> Place:
    """That of the innermost subtask at work in these frames; else, where the process has no other, that of its first one."""
    for frame in reversed(frames):
        # Locals of a frame are copied, and kept, when they are looked at: only of those that are short-lived.
        if frame.f_code.co_qualname.startswith("Subtask.") and isinstance(found := frame.f_locals.get("self"), Subtask):
            return _place(found)
    first = next((subtask for task in tasks for subtask in task.subtasks), None)
    return Place() if first is None else _place(first)


def _place(subtask: Subtask) -> Place:
    return Place(subtask.environment.job_id, str(subtask.stage.id), subtask.index)
