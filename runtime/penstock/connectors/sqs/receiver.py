"""Threads that receive messages, keep them from coming again while the job has them, and delete them."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.errors import PenstockError, SourceError
from penstock.connectors.aws import errors
from penstock.connectors.sqs.client import LOGGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.connectors.sqs.client import Queue

AT_ONCE = 10
"""Messages of a request: SQS takes and gives no more."""
_POLL_S = 5
"""How long SQS waits for a message."""
_CLOSE_S = 5.0
_AHEAD = 2_000
"""Messages that wait for the task; more are not received."""
_AHEAD_BYTES = 16 * 1024 * 1024
_ASKED_S = 10.0
"""How often SQS is asked how much is left."""
_GONE = ("InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid")
"""Nobody needs to keep what is not under way any more."""


class Message(NamedTuple):
    id: str
    handle: str
    time: int | None
    """When it was sent, ms."""
    body: bytes
    group: str
    """Of a FIFO queue."""

    def value(self) -> bytes:
        return self.body


class Receiver:
    """Of one subtask.

    Args:
        hidden_s: for so long SQS gives a message to nobody else; renewed while the job has it.
        threads: that receive; 1 for a FIFO queue, whose order they would lose.
        most_under_way: messages that were received and are not deleted.
    """

    def __init__(self, queue: Queue, name: str, *, hidden_s: int, threads: int, most_under_way: int) -> None:
        self._queue = queue
        self._hidden_s = hidden_s
        self._most = most_under_way
        self._client = queue.aws.client(SourceError, threads)
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._receiving = 0
        self._held: dict[str, float] = {}
        """Handle -> when it is to be renewed, by the monotonic clock."""
        self._requests: deque[tuple[int, list[str]]] = deque()
        self._deleted: deque[int] = deque()
        self._changed = threading.Condition()
        self._error: PenstockError | None = None
        self._is_closed = False
        self._left: int | None = None
        self._is_busy = False
        """There was a whole answer the last time."""
        self._caretaker = threading.Thread(
            target=self._guarded, args=(self._look_after,), name=f"sqs {name}", daemon=True
        )
        receivers = [
            threading.Thread(
                target=self._guarded, args=(partial(self._receive, number),), name=f"sqs {name} {number}", daemon=True
            )
            for number in range(threads)
        ]
        for thread in (self._caretaker, *receivers):
            thread.start()

    # --- the task's side --------------------------------------------------------------------------------------

    def take(self, most: int, most_bytes: int) -> list[Message]:
        """What has come; does not wait.

        Raises:
            SourceError: the queue cannot be read any more.
        """
        taken: list[Message] = []
        size = 0
        with self._changed:
            while self._inbox and len(taken) < most and size < most_bytes:
                if taken and (self._inbox[0].time is None) != (taken[0].time is None):
                    break  # records of a batch have times, or none has
                message = self._inbox.popleft()
                taken.append(message)
                size += len(message.body)
            self._inbox_bytes -= size
            if taken:
                self._changed.notify_all()
            elif self._error is not None:
                raise self._error
        return taken

    @property
    def waiting(self) -> int:
        """How many have come and were not taken."""
        return len(self._inbox)

    def delete(self, handles: list[str], checkpoint_id: int) -> None:
        """They are in a complete checkpoint; `deleted` says when SQS has done it."""
        with self._changed:
            self._requests.append((checkpoint_id, handles))
            self._changed.notify_all()

    def deleted(self) -> int | None:
        """The newest checkpoint whose messages are deleted, once."""
        newest = None
        while self._deleted:
            newest = self._deleted.popleft()
        return newest

    @property
    def lag(self) -> int | None:
        """Messages that wait, here and, as far as SQS knows, there."""
        return None if self._left is None else self._left + len(self._inbox)

    def close(self) -> None:
        """Delete what was asked for, and let go of the rest: SQS gives it to whoever comes next."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._caretaker.join(_CLOSE_S)

    # --- threads ----------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PenstockError as error:
            self._fail(error)
        except Exception as error:  # nobody else would hear of it
            self._fail(self._queue.aws.explained(SourceError, "cannot be read", error))

    def _fail(self, error: PenstockError) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _asked(self, what: str, call: Callable[[], Any]) -> Any:
        return self._queue.aws.asked(SourceError, what, call, lambda: self._is_closed)

    def _receive(self, number: int) -> None:
        while self._has_room(number):
            messages: list[Message] = []
            try:
                messages = self._asked("cannot be read", self._receive_some)
            finally:
                self._put(messages)

    def _put(self, messages: list[Message]) -> None:
        due = time.monotonic() + self._hidden_s / 3
        with self._changed:
            self._receiving -= AT_ONCE
            self._is_busy = len(messages) == AT_ONCE
            is_late = self._is_closed
            if not is_late:
                self._inbox.extend(messages)
                self._inbox_bytes += sum(len(message.body) for message in messages)
                self._held.update((message.handle, due) for message in messages)
            self._changed.notify_all()
        if is_late and messages:  # perhaps what has just been let go of
            self._let_go_of([message.handle for message in messages])

    def _has_room(self, number: int) -> bool:
        """Wait for it, and for messages to be many: while they are few, one thread asks. False: nobody reads any more."""
        with self._changed:
            while not self._is_closed and self._error is None:
                waits = len(self._inbox) + self._receiving < _AHEAD and self._inbox_bytes < _AHEAD_BYTES
                waits = waits and (self._is_busy or number == 0)
                if waits and len(self._held) + self._receiving + AT_ONCE <= self._most:
                    self._receiving += AT_ONCE
                    return True
                self._changed.wait()
        return False

    def _receive_some(self) -> list[Message]:
        answer = self._client.receive_message(
            QueueUrl=self._queue.url,
            MaxNumberOfMessages=AT_ONCE,
            WaitTimeSeconds=_POLL_S,
            VisibilityTimeout=self._hidden_s,
            AttributeNames=["SentTimestamp", "MessageGroupId"],
        )
        return [_message(told) for told in answer.get("Messages", ())]

    def _look_after(self) -> None:
        """Renew, delete, ask how much is left."""
        asked_at = 0.0
        while True:
            with self._changed:
                if not self._requests and not self._is_closed:
                    self._changed.wait(min(1.0, self._hidden_s / 10))
                requests, is_closed = list(self._requests), self._is_closed
                self._requests.clear()
            for checkpoint_id, handles in requests:
                self._delete(handles)
                self._deleted.append(checkpoint_id)
            if is_closed or self._error is not None:
                self._let_go()
                return
            self._renew()
            if time.monotonic() >= asked_at:
                self._left = self._ask()
                asked_at = time.monotonic() + _ASKED_S

    def _delete(self, handles: list[str]) -> None:
        for some in _in_tens(handles):
            entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(some)]
            answer = self._asked(
                "takes no deletions",
                partial(self._client.delete_message_batch, QueueUrl=self._queue.url, Entries=entries),
            )
            for refused in answer.get("Failed", ()):
                if not _is_gone(refused):
                    raise SourceError(
                        f"queue {self._queue.name!r} does not delete a message: {refused.get('Code')}: {refused.get('Message')}",
                        remedy="the job goes on from its newest checkpoint and tries again",
                    )
            with self._changed:
                for handle in some:
                    self._held.pop(handle, None)
                self._changed.notify_all()

    def _renew(self) -> None:
        now = time.monotonic()
        with self._changed:
            due = [handle for handle, at in self._held.items() if at <= now]
        for some in _in_tens(due):
            self._hide(some, self._hidden_s)
            with self._changed:
                for handle in some:
                    if handle in self._held:
                        self._held[handle] = now + self._hidden_s / 3

    def _hide(self, handles: list[str], seconds: int) -> None:
        entries = [
            {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for number, handle in enumerate(handles)
        ]
        answer = self._asked(
            "does not keep messages back",
            lambda: self._client.change_message_visibility_batch(QueueUrl=self._queue.url, Entries=entries),
        )
        for refused in answer.get("Failed", ()):
            LOGGER.info("queue %r: a message may come again: %s", self._queue.name, refused.get("Message"))

    def _let_go(self) -> None:
        """Of what no checkpoint has, so that it comes at once to whoever goes on."""
        with self._changed:
            handles = list(self._held)
        self._let_go_of(handles)

    def _let_go_of(self, handles: list[str]) -> None:
        try:
            for some in _in_tens(handles):
                self._hide(some, 0)
        except PenstockError as error:
            LOGGER.info("messages of queue %r come again in %d s: %s", self._queue.name, self._hidden_s, error)

    def _ask(self) -> int | None:
        name = "ApproximateNumberOfMessages"
        try:
            answer = self._client.get_queue_attributes(QueueUrl=self._queue.url, AttributeNames=[name])
        except errors():  # only for the metrics
            return self._left
        return int(answer.get("Attributes", {}).get(name, 0))


def _message(told: dict[str, Any]) -> Message:
    attributes = told.get("Attributes", {})
    sent = attributes.get("SentTimestamp")
    return Message(
        told["MessageId"],
        told["ReceiptHandle"],
        None if sent is None else int(sent),
        told["Body"].encode(),
        attributes.get("MessageGroupId", ""),
    )


def _is_gone(refused: dict[str, Any]) -> bool:
    return any(part in str(refused.get("Code", "")) for part in _GONE)


def _in_tens(handles: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(handles)
    while some := list(islice(rest, AT_ONCE)):
        yield some
