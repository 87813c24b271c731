"""Requests to a running job from other threads. The JobMaster executes them at the next barrier.

Long actions return at once, and clients poll their outcome by request id.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Operation:
    """Request and, after completion, its outcome. `wait` is for callers in the same process."""

    kind: str
    """`savepoint`, `checkpoint`, `stop`, `cancel` or `rescale`."""
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    location: str | None = None
    failure: str | None = None
    result: Any = None
    before_done: Callable[[Operation], object] = lambda operation: None
    """Function that is called with the outcome, before callers can see it."""
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def complete(self, *, location: str | None = None, result: Any = None) -> None:
        self.location = location
        self.result = result
        self.before_done(self)
        self._done.set()

    def fail(self, failure: str) -> None:
        self.failure = failure
        self.before_done(self)
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._done.wait(timeout_s)
