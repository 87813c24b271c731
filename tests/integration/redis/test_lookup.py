"""Look up strings and hashes of Redis for each value of a stream."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SourceError
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.redis import RedisLookup
from tests.in_process import environment, run
from tests.integration.redis.streams import Stream
from tools.servers.redis import RedisServer

pytestmark = pytest.mark.redis
SEEN: list[Any] = []
"""The records of the job's sink. The job runs with its own copy of the sink, because programs are serialized."""


def see(value: Any) -> None:
    SEEN.append(value)


def pair(value: Any, found: Any) -> list[Any]:
    return [(value, found)]


class Keys:
    """The keys of one test."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.prefix = f"k{uuid.uuid4().hex[:8]}"

    def of(self, value: Any) -> str | None:
        return None if value is None else f"{self.prefix}:{value}"

    def lookup(self, **options: Any) -> RedisLookup:
        prefix = self.prefix
        given: dict[str, Any] = {"key": lambda value: None if value is None else f"{prefix}:{value}", "join": pair}
        return RedisLookup(self.server.url, **{**given, **options})

    def set(self, **values: Any) -> None:
        with Stream(self.server).client as client:
            for name, value in values.items():
                if isinstance(value, dict):
                    client.hset(self.of(name), mapping=value)
                else:
                    client.set(self.of(name), value)


@pytest.fixture
def keys(redis_server: RedisServer) -> Keys:
    return Keys(redis_server)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Keys]:
    """Yield the keys of a separate server that the test kills and pauses."""
    with RedisServer(tmp_path / "redis") as server:
        yield Keys(server)


def looked_up(function: RedisLookup, *values: Any) -> list[Any]:
    """Look up all values at the same time."""

    async def ask() -> list[Any]:
        return await asyncio.gather(*map(function.async_invoke, values))

    return [result for results in asyncio.run(ask()) for result in results]


def opened(function: RedisLookup) -> RedisLookup:
    function.open(None)
    return function


def test_values_get_the_strings_of_their_keys(keys: Keys) -> None:
    keys.set(a="ä", b="2")
    assert looked_up(opened(keys.lookup()), "a", "x", None, "b") == [("a", "ä"), ("x", None), (None, None), ("b", "2")]
    assert looked_up(opened(keys.lookup(binary=True)), "a") == [("a", "ä".encode())]


def test_values_get_the_hashes_of_their_keys_whole_or_in_part(keys: Keys) -> None:
    keys.set(a={"name": "Ä", "height": 7})
    assert looked_up(opened(keys.lookup(fields="*")), "a", "x") == [("a", {"name": "Ä", "height": "7"}), ("x", None)]
    part = opened(keys.lookup(fields=["height", "other"]))
    assert looked_up(part, "a", "x") == [("a", {"height": "7", "other": None}), ("x", None)]


def test_answers_are_cached_for_their_ttl(keys: Keys) -> None:
    believes, asks = opened(keys.lookup()), opened(keys.lookup(ttl=0))
    for function in (believes, asks):
        assert looked_up(function, "a") == [("a", None)]
    keys.set(a="new")
    assert looked_up(believes, "a") == [("a", None)]
    assert looked_up(asks, "a") == [("a", "new")]


def test_a_key_of_another_type_is_no_missing_key(keys: Keys) -> None:
    keys.set(a={"n": 1}, b="text")
    with pytest.raises(SourceError, match="WRONGTYPE"):
        looked_up(opened(keys.lookup()), "a")
    with pytest.raises(SourceError, match="WRONGTYPE"):
        looked_up(opened(keys.lookup(fields="*")), "b")


def test_the_error_for_a_value_that_is_not_text_has_a_remedy(keys: Keys) -> None:
    keys.set(a=b"\xff")
    with pytest.raises(SourceError, match="does not hold UTF-8 text") as error:
        looked_up(opened(keys.lookup()), "a")
    assert "binary=True" in error.value.remedy


def test_refused_access_is_an_error_when_the_function_opens(keys: Keys, tmp_path: Path) -> None:
    server = keys.server
    for url, message in (
        ("redis://127.0.0.1:1", "cannot connect"),
        (server.url_of("default", "wrong"), "WRONGPASS"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            RedisLookup(url, key=str, join=pair).open(None)
        assert error.value.remedy
        assert "wrong" not in str(error.value).replace("WRONG", "")
    (tmp_path / "password").write_text(server.password)
    opened(
        RedisLookup(f"redis://127.0.0.1:{server.port}", key=str, join=pair, password_file=str(tmp_path / "password"))
    )
    with pytest.raises(InvalidJob, match="fields='name'"):
        RedisLookup(server.url, key=str, join=pair, fields="name")


def test_the_lookup_retries_a_server_that_is_killed_or_paused(own: Keys) -> None:
    own.set(a="1", b="2", c="3")
    function = opened(own.lookup(ttl=0))

    async def go() -> None:
        assert await function.async_invoke("a") == [("a", "1")]
        await asyncio.to_thread(own.server.kill)
        restarting = threading.Timer(0.3, own.server.restart)
        restarting.start()
        assert await function.async_invoke("b") == [("b", "2")]
        await asyncio.to_thread(restarting.join)
        own.server.pause()
        resuming = threading.Timer(0.5, own.server.resume)
        resuming.start()
        assert await function.async_invoke("c") == [("c", "3")]
        resuming.join()

    asyncio.run(go())


def test_a_stream_is_enriched_in_a_job(keys: Keys, tmp_path: Path) -> None:
    keys.set(**{"1": {"name": "one"}, "2": {"name": "two"}})
    env = environment(tmp_path)
    stream = env.from_collection([1, 2, 3] * 50)
    rich = AsyncDataStream.unordered_wait(stream, keys.lookup(fields="*"), 20_000, 100)
    SEEN.clear()
    rich.add_sink(see)
    run(env)
    assert sorted(SEEN, key=str)[::50] == [(1, {"name": "one"}), (2, {"name": "two"}), (3, None)]
