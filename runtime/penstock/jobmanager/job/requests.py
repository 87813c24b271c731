"""What may be asked of a running job from other threads; carried out by the JobMaster at the next barrier.

Long actions return at once; their outcome is polled by request id (O13).
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Operation:
    """A request and, when it is done, its outcome. `wait` is for callers in the same process."""

    kind: str
    """`savepoint`, `checkpoint`, `stop`, `cancel`, `rescale`."""
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    location: str | None = None
    failure: str | None = None
    result: Any = None
    _done: threading.Event = field(default_factory=threading.Event)

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def complete(self, *, location: str | None = None, result: Any = None) -> None:
        self.location = location
        self.result = result
        self._done.set()

    def fail(self, failure: str) -> None:
        self.failure = failure
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._done.wait(timeout_s)
