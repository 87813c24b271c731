"""Attribution of a stack in this process to a job, a vertex and a subtask, by its frames or by the tasks of the process."""

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
from penstock.taskmanager.watching.edge_taps import peek

logger = logging.getLogger(__name__)

_is_listening = False


def serve_stacks(tasks: Callable[[], Iterable[LevelTask]]) -> None:
    """Let the TaskManager request the stacks and the records of this process from now on. Later calls do nothing.

    Args:
        tasks: returns the tasks that are in this process at the moment. Another thread calls this function.
    """
    global _is_listening
    local_dir = os.environ.get(LOCAL_DIR)
    if _is_listening or not local_dir:
        return
    _is_listening = True
    try:
        listen(
            stacks_folder(local_dir), lambda frames: place_of(frames, tasks()), lambda question: peek(question, tasks)
        )
    except OSError as error:
        logger.warning("stacks of this process are not available: %s", error)


def place_of(frames: Sequence[FrameType], tasks: Iterable[LevelTask]) -> Place:
    """Return the place of the innermost subtask in these frames, or else of the first subtask in the process."""
    for frame in reversed(frames):
        # Reading `f_locals` copies and keeps the locals, so read them only from short-lived frames.
        if frame.f_code.co_qualname.startswith("Subtask.") and isinstance(found := frame.f_locals.get("self"), Subtask):
            return _place(found)
    first = next((subtask for task in tasks for subtask in task.subtasks), None)
    return Place() if first is None else _place(first)


def _place(subtask: Subtask) -> Place:
    return Place(subtask.environment.job_id, str(subtask.stage.id), subtask.index)
