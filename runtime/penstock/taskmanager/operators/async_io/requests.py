"""The event loop of one async function, in a thread of its own: requests go on while the task does other things.

All of the user's code runs on that loop, one piece at a time (A51): the function's `open` and `close` too, because clients
of asynchronous services want a loop around them. The task hands requests over and is woken when some are answered.

All requests have the same time to be answered, so their deadlines come in the order in which they began: one timer, for the first that is
under way, is enough. `asyncio.timeout` sets one for each request, which costs more than most of what is asked for in memory.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.common.errors import RecordFormatError
from penstock.common.time import as_millis
from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.functions.function import bind
from penstock.records.fields import shortened
from penstock.taskmanager.operators.async_io.answers import Request

T = TypeVar("T")
_ANSWERED_KEPT = 4
"""Times the capacity: so many requests may stand behind a slow one in the order of deadlines before those that were answered are taken out."""


class RequestLoop:
    """Asks for what it is given, at most `capacity` at a time.

    Args:
        convert: of a result to its declared type; None: as it is.
        on_done: called on the loop's thread when there are answers and the last ones were taken.
    """

    def __init__(
        self,
        descriptor: AsyncFunctionDescriptor,
        convert: Callable[[Any], Any] | None,
        on_done: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._timeout_s = as_millis(descriptor.timeout) / 1000
        self._convert = convert
        self._on_done = on_done
        self._waiting: deque[Request] = deque()
        self._running: dict[asyncio.Task[None], Request] = {}
        self._deadlines: deque[tuple[float, asyncio.Task[None]]] = deque()
        """On the loop's clock, the next one first; of requests that have been answered, too."""
        self._late: set[asyncio.Task[None]] = set()
        """They are cancelled because their time is over."""
        self._timer: asyncio.TimerHandle | None = None
        self._done: deque[Request] = deque()
        self._has_told = False
        self._answered = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread: threading.Thread | None = None

    @property
    def works_in(self) -> int | None:
        """The loop's thread, for `taskmanager.watching.watchdog`."""
        return None if self._thread is None else self._thread.ident

    # --- called by the task ------------------------------------------------------------------------------------

    def start(self, open_function: Callable[[], None]) -> None:
        """Returns when the function is open; raises what its `open` did."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="penstock-async", daemon=True)
        self._thread.start()
        started.result()
        self.call(open_function)
        fn = self._descriptor.async_function
        self._call = bind(fn, "async_invoke")
        self._on_timeout = getattr(fn, "timeout", None)
        predicate = self._descriptor.async_retry_strategy.get_retry_predicate()
        self._is_bad = predicate.result_predicate()
        self._may_pass = predicate.exception_predicate()
        tries_again = self._is_bad is not None or self._may_pass is not None
        self._ask: Callable[[Any], Any] = self._attempts if tries_again else self._call

    def call(self, action: Callable[[], T]) -> T:
        """Run user code on the loop, between two steps of its requests."""

        async def run() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def ask(self, requests: list[Request]) -> None:
        self._loop.call_soon_threadsafe(self._accept, requests)

    def take_done(self) -> Iterator[Request]:
        """What was answered since the last call, in that order."""
        self._answered.clear()
        # Last before the look: what comes from now on is told of again, and nobody takes that back.
        self._has_told = False
        while self._done:
            yield self._done.popleft()

    def wait(self) -> None:
        """Until there is something to take."""
        self._answered.wait()

    def close(self, close_function: Callable[[], None]) -> None:
        """Give up what is under way. Raises what the function's `close` did."""
        if self._thread is None:
            return
        try:
            self.call(self._give_up)
            self.call(close_function)
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None

    # --- on the loop's thread ----------------------------------------------------------------------------------

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        started.set_result(None)
        await self._stop.wait()

    def _give_up(self) -> None:
        self._waiting.clear()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running:
            task.cancel()

    def _accept(self, requests: list[Request]) -> None:
        self._waiting.extend(requests)
        self._ask_more()

    def _ask_more(self) -> None:
        waiting, running = self._waiting, self._running
        room = self._descriptor.capacity - len(running)
        if not waiting or room <= 0:
            return
        deadline = self._loop.time() + self._timeout_s
        while waiting and room > 0:
            room -= 1
            request = waiting.popleft()
            task = self._loop.create_task(self._answer(request))
            running[task] = request
            task.add_done_callback(self._on_answer)
            self._deadlines.append((deadline, task))
        if len(self._deadlines) > _ANSWERED_KEPT * self._descriptor.capacity:
            self._deadlines = deque(entry for entry in self._deadlines if not entry[1].done())
        if self._timer is None:
            self._expect_next()

    def _expect_next(self) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][1].done():
            deadlines.popleft()
        self._timer = self._loop.call_at(deadlines[0][0], self._on_deadline) if deadlines else None

    def _on_deadline(self) -> None:
        now, deadlines = self._loop.time(), self._deadlines
        while deadlines and (deadlines[0][0] <= now or deadlines[0][1].done()):
            _, task = deadlines.popleft()
            if not task.done():
                self._late.add(task)
                task.cancel()
        self._expect_next()

    def _on_answer(self, task: asyncio.Task[None]) -> None:
        request = self._running.pop(task)
        if task.cancelled() and request.error is None:
            self._settle_cancelled(request, is_late=task in self._late)
        self._late.discard(task)
        deadlines = self._deadlines
        while deadlines and deadlines[0][1].done():
            deadlines.popleft()
        self._done.append(request)
        if not self._has_told:
            self._has_told = True
            self._answered.set()
            self._on_done()
        if self._waiting:
            self._ask_more()

    def _settle_cancelled(self, request: Request, *, is_late: bool) -> None:
        """Late: its time was over before it had its first step, while something held up the loop."""
        if not is_late:
            request.error = asyncio.CancelledError("the request was cancelled")
            return
        try:
            request.results = self._checked(self._give_instead(request.value))
        except BaseException as error:
            request.error = error

    async def _answer(self, request: Request) -> None:
        try:
            try:
                results = await self._awaitable(self._ask(request.value))
            except asyncio.CancelledError:
                if not self._is_late():
                    raise
                results = self._give_instead(request.value)
            request.results = self._checked(results)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # SystemExit would end the loop, and nobody would be told
            request.error = error

    def _is_late(self) -> bool:
        """Whether the request at hand was cancelled for its time, and by nobody else."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        return task in self._late and task.uncancel() == 0

    def _give_instead(self, value: Any) -> Any:
        if self._on_timeout is None:
            raise TimeoutError(f"no answer within {self._timeout_s} s")
        return self._on_timeout(value)

    async def _attempts(self, value: Any) -> Any:
        strategy = self._descriptor.async_retry_strategy
        attempts = 0
        while True:
            attempts += 1
            try:
                results = await self._awaitable(self._call(value))
            except Exception as error:
                again = self._may_pass is not None and self._may_pass(error) and strategy.can_retry(attempts)
                if not again:
                    raise
            else:
                if self._is_bad is None or not self._is_bad(results) or not strategy.can_retry(attempts):
                    return results
            await asyncio.sleep(strategy.get_backoff_time_millis(attempts) / 1000)

    @staticmethod
    def _awaitable(answer: Any) -> Any:
        if inspect.isawaitable(answer):
            return answer
        raise RecordFormatError(
            f"async_invoke returned {shortened(answer)}, which cannot be awaited",
            remedy="define it with `async def`; what does not wait for anything belongs into map or flat_map",
        )

    def _checked(self, results: Any) -> list[Any]:
        if results is None:
            raise RecordFormatError(
                "The result of AsyncFunction cannot be none: async_invoke or timeout returned None, not a list of results",
                remedy="return [] for no result",
            )
        if isinstance(results, str | bytes | dict) or not hasattr(results, "__iter__"):
            raise RecordFormatError(
                f"The result of AsyncFunction should be of list type: async_invoke returned {shortened(results)}, not a list of results",
                remedy="return [result]",
            )
        return list(results) if self._convert is None else list(map(self._convert, results))
