"""The environment that the subtasks of a slot share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.functions.operator_context import Clock
from penstock.metrics.scope import ScopeFormats
from penstock.taskmanager.waker import Waker
from penstock.taskmanager.watching.watchdog import Unwatched


@dataclass
class TaskEnvironment:
    """The services and settings that the process gives to all subtasks of a slot."""

    job_id: str
    job_name: str
    attempt: int
    clock: Clock
    backend: str = "hashmap"
    backend_options: dict[str, Any] = field(default_factory=dict)
    work_dir: str = ""
    local_folders: list[str] = field(default_factory=list)
    """Folders for copies of state files, the slot's folder first. Empty means that no copies are kept."""
    metric_scopes: ScopeFormats | None = None
    object_store_options: dict[str, Any] = field(default_factory=dict)
    merged_file_bytes: int = 0
    """Maximum bytes of an object that combines small state files; 0 means that files are not combined."""
    latency_interval_ms: int = 0
    """Time between two latency markers of a source; 0 means no markers."""
    latency_granularity: str = "operator"
    print_line: Callable[[str], None] | None = None
    results: Callable[[str, list[Any]], None] | None = None
    host: str = "localhost"
    task_manager: str = ""
    watchdog: Unwatched = field(default_factory=Unwatched)
    waker: Waker = field(default_factory=Waker)
