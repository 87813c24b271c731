"""The operator's client with a master that serves TLS, on real sockets."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from penstock_operator.engine.client import HttpEngine, MasterTls
from penstock_operator.engine.tls import TlsClients
from penstock_operator.errors import EngineUnreachable
from tests.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"jobs":[]}'


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    await writer.drain()
    writer.close()


async def _ask(folder: Path, host: str, ca: str) -> list[object]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=context)
    clients = TlsClients(5.0, 4)
    try:
        url = f"https://{host}:{server.sockets[0].getsockname()[1]}"
        return list(await HttpEngine(clients.client(MasterTls(ca)), url, None).jobs())
    finally:
        await clients.close()
        server.close()


def test_a_master_is_verified_by_ca_and_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.write("localhost")
    assert asyncio.run(_ask(tmp_path, "localhost", authority.pem.decode())) == []
    other = Authority(tmp_path, "other").pem.decode()
    for host, ca in (
        ("localhost", other),
        ("127.0.0.1", authority.pem.decode()),
        ("localhost", ""),
        ("localhost", "no PEM"),
    ):
        with pytest.raises(EngineUnreachable):
            asyncio.run(_ask(tmp_path, host, ca))
