"""Logs of TaskManagers over their connection: what the JobManager asks, and what a TaskManager answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError

from penstock.common.logs.log_file import LogPart
from penstock.jobmanager.cluster.log_files import LogFiles
from penstock.jobmanager.cluster.registration import MOST_LOG_BYTES, AskLog, LogAnswer
from penstock.rest import facts
from penstock.rest.errors import NotFound, Unavailable

PATIENCE_S = 10.0


class LogRequests:
    """Questions that wait for their answer; each is asked by a thread of REST's. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[LogAnswer]] = {}
        self._lock = threading.Lock()

    def answered(self, answer: LogAnswer) -> None:
        """An answer that nobody waits for any more is let go."""
        with self._lock:
            waiting = self._waiting.pop(answer.request, None)
        if waiting is not None:
            waiting.set_result(answer)

    def ask(self, post: Callable[[AskLog], bool], name: str = "", start: int = 0, most: int = 0) -> LogAnswer:
        """
        Args:
            post: sends to the TaskManager; False: it has gone.

        Raises:
            Unavailable: it does not answer.
        """
        question = AskLog(next(self._numbers), name, start, most)
        future: Future[LogAnswer] = Future()
        with self._lock:
            self._waiting[question.request] = future
        try:
            if not post(question):
                raise Unavailable("the TaskManager has gone")
            return future.result(PATIENCE_S)
        except LateError:
            raise Unavailable(f"the TaskManager has not answered within {PATIENCE_S:.0f} s") from None
        finally:
            with self._lock:
                self._waiting.pop(question.request, None)


class RemoteLogs:
    """Those of a TaskManager at the other end of a connection (`log_files.LogSource`)."""

    def __init__(self, requests: LogRequests, post: Callable[[AskLog], bool]) -> None:
        self._requests = requests
        self._post = post

    def listing(self) -> list[facts.LogFile]:
        return [facts.LogFile(*file) for file in self._requests.ask(self._post).files]

    def read(self, name: str, start: int, most: int) -> LogPart:
        answer = self._requests.ask(self._post, name, start, min(most, MOST_LOG_BYTES))
        if answer.missing:
            raise NotFound(answer.missing)
        return LogPart(answer.start, answer.end, answer.size, answer.data)


def answer_of(logs: LogFiles, question: AskLog) -> LogAnswer:
    """Of a TaskManager with these logs."""
    if not question.name:
        files = [(file.name, file.size, file.modified_at) for file in logs.listing()]
        return LogAnswer(question.request, files=files)
    try:
        part = logs.read(question.name, question.start, min(question.most, MOST_LOG_BYTES))
    except NotFound as error:
        return LogAnswer(question.request, missing=f"{error.message}; {error.remedy}")
    return LogAnswer(question.request, start=part.start, end=part.end, size=part.size, data=part.data)
