"""Commands, programs and `python job.py` with a JobManager that serves TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cli.queryable_state import QueryableStateClient
from penstock.common.credentials.local_token import LocalToken, dashboard_link, find_token
from penstock.rest.server import RestServer
from penstock.rest.transport.tls import TlsFiles
from tests.certificates import Authority
from tests.unit.cli.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.rest.fake_gateway import FakeGateway


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_commands_accept_an_https_url_and_a_ca_file(gateway: FakeGateway, authority: Authority) -> None:
    certificate, key = authority.write("localhost")
    with RestServer(gateway, port=0, tls=TlsFiles(str(certificate), str(key))) as server:
        by_variable = Terminal({"PENSTOCK_MASTER": server.url, "PENSTOCK_CA_FILE": str(authority.file)})
        assert by_variable("cluster").code == 0
        by_option = Terminal({"PENSTOCK_MASTER": server.url})
        assert by_option("cluster", "--ca-file", str(authority.file)).code == 0
        refused = by_option("cluster")
        assert refused.code == 1
        assert "--ca-file" in refused.err
        address = f"https://127.0.0.1:{server.port}"
        named = by_variable("cluster", "-m", address, "--tls-server-name", "localhost")
        assert named.code == 0
        assert by_variable("cluster", "-m", address).code == 1
        client = QueryableStateClient(server.url, ca_file=authority.file)
        assert client._rest.overview().slots_total == 8
        client.close()


def test_the_local_token_is_used_for_https_and_the_host_name_is_kept() -> None:
    token = LocalToken()
    try:
        token.publish("127.0.0.1", 45678)
        assert find_token("https://localhost:45678") == ("https://localhost:45678", token.value)
        assert dashboard_link("https://localhost:45678") == f"https://localhost:45678/#token={token.value}"
        assert find_token("http://localhost:45678") == ("http://127.0.0.1:45678", token.value)
    finally:
        token.remove()
