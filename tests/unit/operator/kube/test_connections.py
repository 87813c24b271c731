"""Both HTTP clients on real sockets: every failure of a connection is an error that the loops handle."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from penstock_operator.connections import connection_pool
from penstock_operator.engine.client import HttpEngine
from penstock_operator.errors import EngineUnreachable, Unavailable
from penstock_operator.kube.cluster import POD
from penstock_operator.kube.credentials import Credentials
from penstock_operator.kube.http import HttpCluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"jobs":[]}'


def says(octets: bytes) -> Answer:
    """Return a server's answer of these bytes, after which it closes the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(octets)
        await writer.drain()
        writer.close()

    return answer


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


TROUBLES = [
    pytest.param(says(b""), id="closes"),
    pytest.param(says(b"SSH-2.0-OpenSSH_9.2\r\n"), id="is-not-http"),
    pytest.param(says(OK[:-5]), id="breaks-off"),
    pytest.param(hangs, id="hangs"),
]


async def on(answer: Answer, ask: Callable[[str], Awaitable[object]]) -> object:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        return await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def get_pod(url: str) -> object:
    cluster = HttpCluster(Credentials(url), timeout=0.5)
    try:
        return await cluster.get(POD, "ns", "pod")
    finally:
        await cluster.close()


async def get_jobs(url: str) -> object:
    async with httpx.AsyncClient(timeout=0.5, trust_env=False, transport=connection_pool(4)) as http:
        return await HttpEngine(http, url, None).jobs()


@pytest.mark.parametrize("answer", TROUBLES)
def test_failed_connections_to_the_api_server_are_unavailable(answer: Answer) -> None:
    with pytest.raises(Unavailable, match="no response from the API server"):
        asyncio.run(on(answer, get_pod))


@pytest.mark.parametrize("answer", TROUBLES)
def test_failed_connections_to_a_master_are_unavailable(answer: Answer) -> None:
    with pytest.raises(EngineUnreachable):
        asyncio.run(on(answer, get_jobs))


def test_a_closed_port_is_unavailable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(Unavailable):
            asyncio.run(get_pod(url))
        with pytest.raises(EngineUnreachable):
            asyncio.run(get_jobs(url))


def test_connections_are_reused_and_a_closed_one_does_no_harm() -> None:
    opened: list[asyncio.StreamWriter] = []
    closing: list[bool] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            writer.write(OK)
            await writer.drain()
            if closing:
                break
        writer.close()

    async def ask(url: str) -> None:
        async with httpx.AsyncClient(timeout=5, trust_env=False, transport=connection_pool(4)) as http:
            for _ in range(5):
                assert await HttpEngine(http, url, None).jobs() == []
            assert len(opened) == 1
            closing.append(True)
            for _ in range(3):
                assert await HttpEngine(http, url, None).jobs() == []
                await asyncio.sleep(0.01)

    asyncio.run(on(answer, ask))
