"""`ResultQueue`: the results of a job on their way to the program that collects them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.connectors.simple.collect import decode_collected

if TYPE_CHECKING:
    from penstock.jobmanager.job.job_master import JobMaster


class ResultQueue:
    """Queue of results from the job's thread to the iterator's thread."""

    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._lock = threading.Condition()

    def put(self, uid: str, values: list[bytes]) -> None:
        with self._lock:
            self._values.extend(values)
            self._lock.notify()

    def values(self, master: JobMaster) -> Iterator[Any]:
        while True:
            with self._lock:
                done = master.is_done
                if not self._values and not done:
                    self._lock.wait(0.1)
                taken, self._values = self._values, []
            for encoded in taken:
                yield decode_collected(encoded)
            if done and not taken:
                return
