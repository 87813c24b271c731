"""A master runs its author's code. Its answers can neither block the operator nor fill its memory."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from penstock_operator.connections import connection_pool
from penstock_operator.engine import client as client_module
from penstock_operator.engine.autoscaler import Autoscaler
from penstock_operator.engine.client import HttpEngine
from penstock_operator.errors import EngineError, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def master(write: Callable[[asyncio.StreamWriter], object]) -> AsyncIterator[HttpEngine]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            found = write(writer)
            if asyncio.iscoroutine(found):
                await found
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with httpx.AsyncClient(timeout=10, trust_env=False, transport=connection_pool(5)) as http:
        yield HttpEngine(http, f"http://{host}:{port}", "token")
    server.close()


def refusal(write: Callable[[asyncio.StreamWriter], object]) -> str:
    async def scenario() -> str:
        async with master(write) as engine:
            with pytest.raises(EngineError) as found:
                await engine.jobs()
            return str(found.value)

    return asyncio.run(scenario())


def test_a_compressed_answer_is_not_decompressed() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    head = HEAD + f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    assert "compressed (gzip)" in refusal(lambda writer: writer.write(head + bomb))


def test_an_endless_answer_is_truncated() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"\r\n")
        while sent < 1 << 28:
            writer.write(b" " * (1 << 16))
            sent += 1 << 16
            await writer.drain()

    assert "larger than 4 MiB" in refusal(endless)
    assert sent < 1 << 26


def test_a_slow_answer_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TOTAL_TIMEOUT", 0.2)

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def scenario() -> None:
        async with master(drip) as engine:
            began = time.monotonic()
            with pytest.raises(EngineUnreachable, match="not complete within"):
                await engine.jobs()
            assert time.monotonic() - began < 3

    asyncio.run(scenario())


def test_an_answer_that_is_nested_too_deep_is_invalid_json() -> None:
    body = b"[" * 200_000
    head = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode()
    assert "not JSON" in refusal(lambda writer: writer.write(head + body))


def autoscaler_of(body: object) -> Autoscaler:
    content = json.dumps(body).encode()

    async def scenario() -> Autoscaler:
        async with master(lambda writer: writer.write(HEAD + b"\r\n" + content)) as engine:
            return await engine.autoscaler("a" * 32)

    return asyncio.run(scenario())


ANSWER = {"mode": "active", "current": 2, "requested": 2, "wanted": 4, "reason": "WAITING_FOR_SLOTS", "message": "m"}


def test_the_state_of_the_autoscaler_is_read() -> None:
    found = autoscaler_of({**ANSWER, "decisions": [{"timestamp": 1_000, "current": 2, "wanted": 4, "inputs": [{}]}]})
    assert (found.needed, len(found.decisions), len(found.inputs)) == (4, 1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"current": None},
        {"wanted": "many"},
        {"requested": {}},
        {"decisions": 7},
        {"decisions": [{"timestamp": 10**30, "current": 1, "wanted": 1}]},
        {"decisions": [{"current": 1}]},
        {"decisions": [{"timestamp": 1, "current": 1, "wanted": 1, "inputs": 7}]},
    ],
    ids=repr,
)
def test_a_wrong_state_of_the_autoscaler_is_an_error_of_the_engine(wrong: dict[str, object]) -> None:
    with pytest.raises(EngineError, match="is not that of an autoscaler"):
        autoscaler_of({**ANSWER, **wrong})
