"""Requests for logs over the connection of a TaskManager: the JobManager's request and the TaskManager's response."""

from __future__ import annotations

from collections.abc import Callable

from penstock.common.logs.log_file import LogPart
from penstock.jobmanager.cluster.logs.files import LogFiles
from penstock.jobmanager.cluster.members.pending_requests import PendingRequests
from penstock.jobmanager.cluster.members.registration import MAX_LOG_BYTES, AskLog, LogAnswer
from penstock.rest import facts
from penstock.rest.errors import NotFound


class RemoteLogs:
    """Logs of a TaskManager at the other end of a connection (`files.LogSource`)."""

    def __init__(self, questions: PendingRequests[AskLog, LogAnswer], post: Callable[[AskLog], bool]) -> None:
        self._questions = questions
        self._post = post

    def listing(self) -> list[facts.LogFile]:
        return [facts.LogFile(*file) for file in self._ask().files]

    def read(self, name: str, start: int, most: int) -> LogPart:
        answer = self._ask(name, start, min(most, MAX_LOG_BYTES))
        if answer.missing:
            raise NotFound(answer.missing)
        return LogPart(answer.start, answer.end, answer.size, answer.data)

    def _ask(self, name: str = "", start: int = 0, most: int = 0) -> LogAnswer:
        return self._questions.ask(self._post, lambda number: AskLog(number, name, start, most))


def answer_of(logs: LogFiles, question: AskLog) -> LogAnswer:
    """Return the response of a TaskManager with these logs."""
    if not question.name:
        files = [(file.name, file.size, file.modified_at) for file in logs.listing()]
        return LogAnswer(question.request, files=files)
    try:
        part = logs.read(question.name, question.start, min(question.most, MAX_LOG_BYTES))
    except NotFound as error:
        return LogAnswer(question.request, missing=f"{error.message}; {error.remedy}")
    return LogAnswer(question.request, start=part.start, end=part.end, size=part.size, data=part.data)
