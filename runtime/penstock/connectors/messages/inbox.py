"""Threads that receive messages, and the messages that the task has not taken yet."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

M = TypeVar("M", bound=Any)


class Background(ABC):
    """Work in threads beside the task. The task raises the threads' first error.

    `changed` guards the state that the threads and the task share. Changes of this state notify it.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.error: PenstockError | None = None
        self._is_closed = False

    @abstractmethod
    def _explained(self, error: Exception) -> PenstockError:
        """Return the error to raise for an exception that is not one of Penstock's."""

    def _start(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
        thread.start()
        return thread

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PenstockError as error:
            self._fail(error)
        except Exception as error:  # the thread has no caller that could receive the exception
            self._fail(self._explained(error))

    def _fail(self, error: PenstockError) -> None:
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def _stop(self) -> None:
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()


class Inbox(Generic[M]):
    """Received messages that wait for the task, in order. A message has `time`, in ms or None.

    Args:
        owner: the threads that fill the inbox.
        size_of: a message -> its bytes.
    """

    def __init__(self, owner: Background, size_of: Callable[[M], int]) -> None:
        self._owner = owner
        self._size_of = size_of
        self._messages: deque[M] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Iterable[M]) -> None:
        with self._owner.changed:
            for message in messages:
                self._messages.append(message)
                self.bytes += self._size_of(message)
            self._owner.changed.notify_all()

    def take(self, most: int, most_bytes: int) -> list[M]:
        """Return messages in order, without waiting. Either all messages have times, or no message has a time, as the
        records of a batch require.

        Raises:
            PenstockError: the inbox is empty, and its threads have failed.
        """
        taken: list[M] = []
        size = 0
        have_times = False
        with self._owner.changed:
            while self._messages and len(taken) < most and size < most_bytes:
                has_time = self._messages[0].time is not None
                if taken and has_time != have_times:
                    break
                have_times = has_time
                taken.append(self._messages.popleft())
                size += self._size_of(taken[-1])
            self.bytes -= size
            if taken:
                self._owner.changed.notify_all()
            elif self._owner.error is not None:
                raise self._owner.error
        return taken

    def clear(self) -> None:
        with self._owner.changed:
            self._messages.clear()
            self.bytes = 0


class QueueClient(Background, Generic[M]):
    """A client of one queue. Threads receive messages, and acknowledge the messages of complete checkpoints.

    Args:
        size_of: a message -> its bytes.
    """

    def __init__(self, size_of: Callable[[M], int]) -> None:
        super().__init__()
        self._inbox = Inbox[M](self, size_of)
        self._confirmed: deque[int] = deque()
        """Checkpoints whose acknowledgements the server has received."""
        self._backlog: int | None = None
        """The number of messages in the queue by the last query. None means unknown."""

    def take(self, most: int, most_bytes: int) -> list[M]:
        """Return received messages. See `Inbox.take`."""
        return self._inbox.take(most, most_bytes)

    @property
    def waiting(self) -> int:
        """Return how many received messages were not taken yet."""
        return len(self._inbox)

    @property
    def lag(self) -> int | None:
        """Return the number of messages that wait here and in the queue. Messages that another client holds are not included."""
        return None if self._backlog is None else self._backlog + len(self._inbox)

    def confirmed(self) -> int | None:
        """Return the newest checkpoint whose acknowledgements the server has received since the last call, or None."""
        newest = None
        while self._confirmed:
            newest = self._confirmed.popleft()
        return newest

    @abstractmethod
    def close(self) -> None:
        """Acknowledge the requested messages and release the other messages. The server delivers the released messages
        to the next client."""
