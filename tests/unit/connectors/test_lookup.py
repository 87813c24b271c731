"""Behaviour of all lookups: no duplicate requests for a key, many keys per request, reused connections, and cached results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, PlatformError, SourceError
from penstock.connectors.core import lookup
from penstock.connectors.core.lookup import Lookup


class Lost(Exception): ...


class Refused(Exception): ...


class Squares(Lookup):
    """A lookup in a fake service that returns squares. Each connection has a number. The given errors fail the first requests."""

    def __init__(self, *fails: Exception | None, hangs: bool = False, **options: Any) -> None:
        given = {"ttl": 60_000, "most_kept": 100, "connections": 2, **options}
        super().__init__(lambda value: value, lambda value, found: [(value, found)], **given)
        self.fails = list(fails)
        self.hangs = hangs
        self.requests: list[list[str]] = []
        self.opened, self.open_now = 0, set[int]()
        self._prepare()

    @property
    def shown(self) -> str:
        return "squares"

    async def _connect(self) -> int:
        self.opened += 1
        self.open_now.add(self.opened)
        return self.opened

    async def _disconnect(self, connection: int) -> None:
        await asyncio.sleep(0)
        self.open_now.remove(connection)

    async def _request(self, connection: int, keys: list[str]) -> Mapping[str, Any]:
        assert connection in self.open_now
        self.requests.append(keys)
        await asyncio.sleep(3600 if self.hangs else 0.001)
        if self.fails and (error := self.fails.pop(0)):
            raise error
        return {key: int(key) ** 2 for key in keys if int(key) >= 0}

    def _no_result(self) -> None:
        return None

    def _explained(self, error: Exception) -> tuple[PlatformError | None, bool]:
        if not isinstance(error, Lost | Refused):
            return None, False
        return SourceError(f"squares: {type(error).__name__}"), isinstance(error, Lost)


async def all_of(function: Lookup, *values: Any) -> list[Any]:
    """Return the results of concurrent calls."""
    return [result for results in await asyncio.gather(*map(function.async_invoke, values)) for result in results]


def looked_up(function: Lookup, *values: Any) -> list[Any]:
    return asyncio.run(all_of(function, *values))


def test_concurrent_keys_are_sent_in_one_request_without_duplicates() -> None:
    function = Squares()
    assert looked_up(function, 1, 2, 1, None, -1) == [(1, 1), (2, 4), (1, 1), (None, None), (-1, None)]
    assert function.requests == [["1", "2", "-1"]]
    assert looked_up(function, 1, -1, 3) == [(1, 1), (-1, None), (3, 9)]
    assert function.requests[1:] == [["3"]], "what is not there is believed, too"


def test_requests_are_bounded_and_use_all_connections() -> None:
    function = Squares(most_kept=10)
    assert looked_up(function, *range(1_200)) == [(n, n * n) for n in range(1_200)]
    assert [len(keys) for keys in function.requests] == [500, 500, 200]
    assert 1 <= function.opened <= 2
    assert len(function._kept) == 10


def test_results_are_requested_each_time_without_a_cache() -> None:
    function = Squares(ttl=0)
    looked_up(function, 1)
    looked_up(function, 1)
    assert function.requests == [["1"], ["1"]]


def test_a_connection_is_reused_and_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_IDLE_S", 0.2)
    function = Squares()

    async def go() -> None:
        for number in range(5):
            await function.async_invoke(number)
            await asyncio.sleep(0.01)
        assert function.opened == 1
        while function.open_now:
            await asyncio.sleep(0.01)
        await function.async_invoke(9)
        assert function.opened == 2

    asyncio.run(go())
    assert not function.open_now, "the end of the loop ends it"


def test_a_lost_server_is_retried_with_a_new_connection() -> None:
    function = Squares(None, Lost(), Lost())

    async def go() -> None:
        assert await function.async_invoke(1) == [(1, 1)]
        assert await function.async_invoke(2) == [(2, 4)]

    asyncio.run(go())
    assert function.opened == 3


def test_all_waiting_requests_fail_after_a_refusal_or_a_permanent_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    for function, message in (
        (Squares(*[Lost()] * 5), "squares: Lost"),
        (Squares(Refused()), "squares: Refused"),
    ):

        async def go(function: Squares = function) -> list[Any]:
            return await asyncio.gather(*map(function.async_invoke, (1, 1, 2)), return_exceptions=True)

        errors = asyncio.run(go())
        assert all(isinstance(error, SourceError) and message in str(error) for error in errors)
        assert looked_up(function, 1) == [(1, 1)], "the next call sends a new request"


def test_an_error_outside_of_the_service_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        looked_up(Squares(ZeroDivisionError()), 1)


def test_a_hanging_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_ANSWER_S", 0.05)
    function = Squares(hangs=True)
    with pytest.raises(SourceError, match="squares: no answer within 0 s"):
        looked_up(function, 1)
    assert len(function.requests) == 5
    assert not function.open_now


def test_a_cancelled_request_does_not_affect_others() -> None:
    function = Squares()

    async def go() -> None:
        first, second = (asyncio.create_task(function.async_invoke(5)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [(5, 25)]
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(go())
    assert len(function.requests) == 1


def test_the_end_of_the_event_loop_cancels_running_requests() -> None:
    function = Squares(hangs=True)

    async def go() -> None:
        waits = asyncio.create_task(function.async_invoke(1))
        while not function.requests:
            await asyncio.sleep(0)
        waits.cancel()

    asyncio.run(go())
    assert not function.open_now
    function.hangs = False
    assert looked_up(function, 1) == [(1, 1)]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InvalidJob, match="connections=0"):
        Squares(connections=0)
    with pytest.raises(InvalidJob, match="most_kept=-1"):
        Squares(most_kept=-1)
