"""The order of results: the order of the inputs, or the order of arrival between two watermarks. Pure, for one thread.

Watermarks and changes of idleness are *marks*. They keep their position among the requests, so that no result crosses a
mark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class Request:
    """One input and its outcome."""

    __slots__ = ("error", "is_done", "results", "segment", "timestamp", "value")

    def __init__(self, value: Any, timestamp: int | None) -> None:
        self.value = value
        self.timestamp = timestamp
        self.results: list[Any] = []
        self.error: BaseException | None = None
        self.is_done = False
        """Whether the task has taken the request from the answered requests. The task sets it, not the event loop."""
        self.segment: _Segment | None = None


@dataclass(frozen=True)
class Mark:
    """A watermark (ms), or a change of idleness."""

    watermark: int | None = None
    is_idle: bool | None = None


class Answers(ABC):
    """The pending requests, with the marks among them."""

    def __init__(self) -> None:
        self._under_way: dict[Request, None] = {}

    def __len__(self) -> int:
        """Return the number of requests whose results have not been emitted."""
        return len(self._under_way)

    def inputs(self) -> list[Request]:
        """Return the requests whose results have not been emitted, in the order of their inputs."""
        return list(self._under_way)

    def put(self, request: Request) -> None:
        self._under_way[request] = None
        self._put(request)

    def take(self, done: Iterator[Request]) -> Iterator[Request | Mark]:
        """Yield the requests and marks that can be emitted now, after the requests in `done` were answered."""
        for request in done:
            self._on_done(request)
        for item in self._take():
            if isinstance(item, Request):
                del self._under_way[item]
            yield item

    @abstractmethod
    def mark(self, mark: Mark) -> None: ...

    @abstractmethod
    def _put(self, request: Request) -> None: ...

    @abstractmethod
    def _on_done(self, request: Request) -> None: ...

    @abstractmethod
    def _take(self) -> Iterator[Request | Mark]: ...


class OrderedAnswers(Answers):
    """The results in the order of their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self._items: deque[Request | Mark] = deque()

    def mark(self, mark: Mark) -> None:
        self._items.append(mark)

    def _put(self, request: Request) -> None:
        self._items.append(request)

    def _on_done(self, request: Request) -> None:
        """Mark the request as done. `_take` emits it after all earlier requests are answered."""
        request.is_done = True

    def _take(self) -> Iterator[Request | Mark]:
        items = self._items
        while items and (isinstance(items[0], Mark) or items[0].is_done):
            yield items.popleft()


class _Segment:
    """The requests between two marks, and the mark after them, if any."""

    __slots__ = ("done", "mark", "open")

    def __init__(self) -> None:
        self.open = 0
        """Number of requests that have not been emitted."""
        self.done: deque[Request] = deque()
        self.mark: Mark | None = None


class UnorderedAnswers(Answers):
    """The results in the order of their arrival. No result crosses a mark."""

    def __init__(self) -> None:
        super().__init__()
        self._segments: deque[_Segment] = deque((_Segment(),))

    def mark(self, mark: Mark) -> None:
        self._segments[-1].mark = mark
        self._segments.append(_Segment())

    def _put(self, request: Request) -> None:
        request.segment = self._segments[-1]
        request.segment.open += 1

    def _on_done(self, request: Request) -> None:
        assert request.segment is not None
        request.segment.done.append(request)

    def _take(self) -> Iterator[Request | Mark]:
        while True:
            segment = self._segments[0]
            while segment.done:
                segment.open -= 1
                yield segment.done.popleft()
            if segment.open or segment.mark is None:
                return
            self._segments.popleft()
            yield segment.mark
