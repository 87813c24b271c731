"""Threads that receive messages, hide them from other receivers while the job has them, and delete them."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.core.aws import errors
from penstock.connectors.messages.inbox import QueueClient
from penstock.connectors.sqs.client import LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.connectors.sqs.client import Queue

AT_ONCE = 10
"""Maximum number of messages in a request. SQS sets this limit."""
_POLL_S = 5
"""Time in seconds that SQS waits for a message."""
_CLOSE_S = 5.0
_AHEAD = 2_000
"""Maximum number of received messages that wait for the task. At this limit, the threads stop receiving."""
_AHEAD_BYTES = 16 * 1024 * 1024
_COUNT_S = 10.0
"""Interval in seconds between two queries of the queue's remaining messages."""
_GONE = ("InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid")
"""Errors for a message that is no longer in flight. The receiver does not try to delete such a message again."""


class Message(NamedTuple):
    id: str
    handle: str
    time: int | None
    """Sending time in ms."""
    body: bytes
    group: str
    """The message group of a FIFO queue."""

    def value(self) -> bytes:
        return self.body


class Receiver(QueueClient[Message]):
    """The receiver of one subtask.

    Args:
        hidden_s: the visibility timeout in seconds. The receiver renews it while the job has the message.
        threads: the number of receiving threads. It is 1 for a FIFO queue, because several threads would mix up the order.
        most_under_way: the maximum number of messages that were received and are not deleted.
    """

    def __init__(self, queue: Queue, name: str, *, hidden_s: int, threads: int, most_under_way: int) -> None:
        super().__init__(lambda message: len(message.body))
        self._queue = queue
        self._hidden_s = hidden_s
        self._most = most_under_way
        self._client = queue.aws.client(SourceError, threads)
        self._receiving = 0
        self._unconfirmed: dict[str, float] = {}
        """The time of the next renewal for each receipt handle, by the monotonic clock."""
        self._requests: deque[tuple[int, list[str]]] = deque()
        self._is_busy = False
        """Whether the last answer had the maximum number of messages."""
        self._caretaker = self._start(f"sqs {name}", self._maintain)
        for number in range(threads):
            self._start(f"sqs {name} {number}", partial(self._receive, number))

    # --- the task's side --------------------------------------------------------------------------------------

    def delete(self, handles: list[str], checkpoint_id: int) -> None:
        """Delete messages of a complete checkpoint. `confirmed` reports when SQS has deleted them."""
        with self.changed:
            self._requests.append((checkpoint_id, handles))
            self.changed.notify_all()

    def close(self) -> None:
        self._stop()
        self._caretaker.join(_CLOSE_S)

    # --- threads ----------------------------------------------------------------------------------------------

    def _explained(self, error: Exception) -> PenstockError:
        return self._queue.aws.explained(SourceError, "cannot be read", error)

    def _retry(self, problem: str, call: Callable[[], Any]) -> Any:
        return self._queue.aws.retry(SourceError, problem, call, lambda: self._is_closed)

    def _receive(self, number: int) -> None:
        while self._has_room(number):
            messages: list[Message] = []
            try:
                messages = self._retry("cannot be read", self._receive_some)
            finally:
                self._put(messages)

    def _put(self, messages: list[Message]) -> None:
        due = time.monotonic() + self._hidden_s / 3
        with self.changed:
            self._receiving -= AT_ONCE
            self._is_busy = len(messages) == AT_ONCE
            is_late = self._is_closed
            if not is_late:
                self._inbox.put(messages)
                self._unconfirmed.update((message.handle, due) for message in messages)
            self.changed.notify_all()
        if is_late and messages:  # these may be messages that were just released
            self._release([message.handle for message in messages])

    def _has_room(self, number: int) -> bool:
        """Wait for space in the buffer. While messages are few, only one thread receives. Return False if the receiver was closed."""
        with self.changed:
            while not self._is_closed and self.error is None:
                waits = len(self._inbox) + self._receiving < _AHEAD and self._inbox.bytes < _AHEAD_BYTES
                waits = waits and (self._is_busy or number == 0)
                if waits and len(self._unconfirmed) + self._receiving + AT_ONCE <= self._most:
                    self._receiving += AT_ONCE
                    return True
                self.changed.wait()
        return False

    def _receive_some(self) -> list[Message]:
        answer = self._client.receive_message(
            QueueUrl=self._queue.url,
            MaxNumberOfMessages=AT_ONCE,
            WaitTimeSeconds=_POLL_S,
            VisibilityTimeout=self._hidden_s,
            AttributeNames=["SentTimestamp", "MessageGroupId"],
        )
        return [_message(message) for message in answer.get("Messages", ())]

    def _maintain(self) -> None:
        """Renew visibility timeouts, delete messages, and query the number of remaining messages."""
        count_at = 0.0
        while True:
            with self.changed:
                if not self._requests and not self._is_closed:
                    self.changed.wait(min(1.0, self._hidden_s / 10))
                requests, is_closed = list(self._requests), self._is_closed
                self._requests.clear()
            for checkpoint_id, handles in requests:
                self._delete(handles)
                self._confirmed.append(checkpoint_id)
            if is_closed or self.error is not None:
                self._release_all()
                return
            self._renew()
            if time.monotonic() >= count_at:
                self._backlog = self._count()
                count_at = time.monotonic() + _COUNT_S

    def _delete(self, handles: list[str]) -> None:
        for some in _in_tens(handles):
            entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(some)]
            answer = self._retry(
                "does not delete messages",
                partial(self._client.delete_message_batch, QueueUrl=self._queue.url, Entries=entries),
            )
            for refused in answer.get("Failed", ()):
                if not _is_gone(refused):
                    raise SourceError(
                        f"queue {self._queue.name!r} does not delete a message: {refused.get('Code')}: {refused.get('Message')}",
                        remedy="the job restarts from its newest checkpoint and retries",
                    )
            with self.changed:
                for handle in some:
                    self._unconfirmed.pop(handle, None)
                self.changed.notify_all()

    def _renew(self) -> None:
        now = time.monotonic()
        with self.changed:
            due = [handle for handle, at in self._unconfirmed.items() if at <= now]
        for some in _in_tens(due):
            self._hide(some, self._hidden_s)
            with self.changed:
                for handle in some:
                    if handle in self._unconfirmed:
                        self._unconfirmed[handle] = now + self._hidden_s / 3

    def _hide(self, handles: list[str], seconds: int) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for number, handle in enumerate(handles)
        ]
        answer = self._retry(
            "does not extend the visibility timeout",
            lambda: self._client.change_message_visibility_batch(QueueUrl=self._queue.url, Entries=entries),
        )
        for refused in answer.get("Failed", ()):
            LOGGER.info("queue %r: a message may be redelivered: %s", self._queue.name, refused.get("Message"))

    def _release_all(self) -> None:
        """Release all messages that are not deleted, so that the next receiver gets them at once."""
        with self.changed:
            handles = list(self._unconfirmed)
        self._release(handles)

    def _release(self, handles: list[str]) -> None:
        try:
            for some in _in_tens(handles):
                self._hide(some, 0)
        except PenstockError as error:
            LOGGER.info("messages of queue %r are redelivered in %d s: %s", self._queue.name, self._hidden_s, error)

    def _count(self) -> int | None:
        name = "ApproximateNumberOfMessages"
        try:
            answer = self._client.get_queue_attributes(QueueUrl=self._queue.url, AttributeNames=[name])
        except errors():  # the number is only for metrics
            return self._backlog
        return int(answer.get("Attributes", {}).get(name, 0))


def _message(message: dict[str, Any]) -> Message:
    attributes = message.get("Attributes", {})
    sent = attributes.get("SentTimestamp")
    return Message(
        message["MessageId"],
        message["ReceiptHandle"],
        None if sent is None else int(sent),
        message["Body"].encode(),
        attributes.get("MessageGroupId", ""),
    )


def _is_gone(refused: dict[str, Any]) -> bool:
    return any(part in str(refused.get("Code", "")) for part in _GONE)


def _in_tens(handles: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(handles)
    while some := list(islice(rest, AT_ONCE)):
        yield some
