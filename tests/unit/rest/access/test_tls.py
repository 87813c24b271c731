from __future__ import annotations

import socket
import ssl
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import httpx
import pytest

from penstock.cli.access.connection import client_tls
from penstock.cli.client import RestClient
from penstock.cli.errors import MasterUnreachable, UsageError
from penstock.common.configuration import Configuration
from penstock.common.errors import CertificateError
from penstock.rest.server import RestServer
from penstock.rest.transport.connections import Connections
from penstock.rest.transport.tls import TlsFiles, tls_files
from tests.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.rest.gateway import ClusterGateway
    from tests.unit.rest.access.current import Current
    from tests.unit.rest.fake_gateway import FakeGateway


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the certificate of the server. Each test replaces the certificate."""
    return tmp_path_factory.mktemp("tls")


@pytest.fixture
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    certificate, key = authority.write("localhost")
    return TlsFiles(str(certificate), str(key))


@pytest.fixture(scope="module")
def shared(folder: Path, current: Current) -> Iterator[RestServer]:
    certificate, key = Authority(folder).write("localhost")
    with RestServer(cast("ClusterGateway", current), port=0, tls=TlsFiles(str(certificate), str(key))) as server:
        yield server


@pytest.fixture
def server(shared: RestServer, current: Current, gateway: FakeGateway, files: TlsFiles) -> RestServer:
    """Return a server that uses `files`."""
    current.gateway = gateway
    return shared


def status_of(server: RestServer, authority: Authority, url: str = "", **named: object) -> int:
    client = RestClient(url or server.url, tls=client_tls(authority.file), **named)  # type: ignore[arg-type]
    try:
        return client.overview().slots_total
    finally:
        client.close()


def test_a_client_with_the_ca_is_answered_over_https(server: RestServer, authority: Authority) -> None:
    assert server.url == f"https://localhost:{server.port}"
    assert status_of(server, authority) == 8
    assert status_of(server, authority, f"localhost:{server.port}") == 8


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_newer_are_supported(server: RestServer, authority: Authority, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.minimum_version = context.maximum_version = version
    assert httpx.get(f"{server.url}/healthz", verify=context).status_code == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_tls_1_1_is_refused(server: RestServer, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", verify=context)


def test_a_certificate_of_another_ca_is_refused_with_the_option_to_use(server: RestServer, tmp_path: Path) -> None:
    with pytest.raises(MasterUnreachable) as caught:
        status_of(server, Authority(tmp_path, "other"))
    assert "--ca-file" in caught.value.remedy


def test_the_systems_cas_are_used_without_a_ca_file(server: RestServer) -> None:
    with pytest.raises(MasterUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        RestClient(server.url).overview()


def test_another_host_name_is_refused(server: RestServer, authority: Authority) -> None:
    with pytest.raises(MasterUnreachable) as caught:
        status_of(server, authority, f"https://127.0.0.1:{server.port}")
    assert "--tls-server-name" in caught.value.remedy
    assert status_of(server, authority, f"https://127.0.0.1:{server.port}", server_name="localhost") == 8
    with pytest.raises(MasterUnreachable):
        status_of(server, authority, server_name="elsewhere.example")


def test_http_to_the_tls_port_fails_and_the_remedy_names_https(server: RestServer) -> None:
    with pytest.raises(MasterUnreachable) as caught:
        RestClient(f"http://localhost:{server.port}", "s3cret").overview()
    assert f"https://localhost:{server.port}" in caught.value.remedy


def test_https_to_a_plain_port_is_refused_and_sends_nothing(gateway: FakeGateway, authority: Authority) -> None:
    with RestServer(gateway, port=0) as plain, pytest.raises(MasterUnreachable) as caught:
        RestClient(f"https://localhost:{plain.port}", "s3cret", tls=client_tls(authority.file)).overview()
    assert "does not use TLS" in caught.value.remedy


def test_a_renewed_certificate_is_used_by_the_next_connection(
    server: RestServer, authority: Authority, folder: Path
) -> None:
    assert status_of(server, authority) == 8
    renewed = Authority(folder, "renewed")
    renewed.write("localhost")
    assert status_of(server, renewed) == 8
    with pytest.raises(MasterUnreachable):
        status_of(server, authority)


def test_files_are_renewed_by_a_swapped_link_as_kubernetes_does(gateway: FakeGateway, tmp_path: Path) -> None:
    authorities = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        authorities.append(Authority(tmp_path / name))
        authorities[-1].write("localhost")
    data = tmp_path / "..data"
    data.symlink_to("first")
    with RestServer(gateway, port=0, tls=TlsFiles(str(data / "tls.crt"), str(data / "tls.key"))) as server:
        assert status_of(server, authorities[0]) == 8
        other = tmp_path / "..data_tmp"
        other.symlink_to("second")
        other.rename(data)
        assert status_of(server, authorities[1]) == 8


@pytest.mark.parametrize("mishap", ["half", "expired", "gone"])
def test_an_invalid_renewal_keeps_the_former_certificate(
    server: RestServer, authority: Authority, files: TlsFiles, folder: Path, mishap: str
) -> None:
    from pathlib import Path as File

    assert status_of(server, authority) == 8
    if mishap == "half":
        File(files.certificate).write_bytes(authority.issue("localhost")[0])
    elif mishap == "expired":
        authority.write("localhost", until=timedelta(hours=-1))
    else:
        File(files.key).unlink()
    assert status_of(server, authority) == 8
    renewed = Authority(folder, "renewed")
    renewed.write("localhost")
    assert status_of(server, renewed) == 8


def test_invalid_files_are_refused_by_name(gateway: FakeGateway, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.write("localhost")
    other_key = authority.write("localhost", name="other")[1]
    expired, expired_key = authority.write("localhost", name="expired", until=timedelta(hours=-1))
    noise = tmp_path / "noise"
    noise.write_text("no PEM")
    sealed = tmp_path / "sealed.key"
    sealed.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIBHDBXBgkqhkiG9w0BBQ0wSjApBgkqhkiG9w0BBQwwHAQIl\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    cases = [
        (TlsFiles(str(tmp_path / "none"), str(key)), "none cannot be read"),
        (TlsFiles(str(certificate), str(tmp_path / "none")), "none cannot be read"),
        (TlsFiles(str(certificate), str(other_key)), "does not belong to the certificate"),
        (TlsFiles(str(expired), str(expired_key)), "has expired at"),
        (TlsFiles(str(noise), str(key)), "has no certificate"),
        (TlsFiles(str(certificate), str(noise)), "cannot be used"),
        (TlsFiles(str(certificate), str(sealed)), "sealed.key"),
        (TlsFiles(str(certificate), str(key), str(noise)), "holds no CA"),
    ]
    for files, words in cases:
        with pytest.raises(CertificateError, match=words) as caught:
            RestServer(gateway, port=0, tls=files)
        assert caught.value.remedy


def test_mutual_tls_requires_a_client_certificate(gateway: FakeGateway, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.write("localhost")
    own = tmp_path / "client.pem"
    own.write_bytes(b"".join(authority.issue("somebody")))
    foreign = tmp_path / "foreign.pem"
    foreign.write_bytes(b"".join(Authority(tmp_path, "foreign-ca").issue("somebody")))
    with RestServer(gateway, port=0, tls=TlsFiles(str(certificate), str(key), str(authority.file))) as server:
        assert RestClient(server.url, tls=client_tls(authority.file, own)).overview().slots_total == 8
        for wrong in (None, foreign):
            with pytest.raises(MasterUnreachable):
                RestClient(server.url, tls=client_tls(authority.file, wrong)).overview()


def test_a_connection_without_a_handshake_is_closed_and_counted(
    gateway: FakeGateway, files: TlsFiles, authority: Authority
) -> None:
    connections = Connections(limit=3, silent_s=0.3)
    with RestServer(gateway, port=0, tls=files, connections=connections) as server:
        silent = [socket.create_connection((server.address, server.port)) for _ in range(6)]
        assert status_of(server, authority) == 8
        for one in silent:
            one.settimeout(5)
            assert one.recv(10) == b""
            one.close()
        assert status_of(server, authority) == 8


def test_the_configuration_names_the_files() -> None:
    assert tls_files(Configuration({"rest.ssl.certificate-file": "c"})) is None
    conf = {"security.ssl.rest.enabled": "true", "rest.ssl.certificate-file": "c", "rest.ssl.key-file": "k"}
    assert tls_files(Configuration(conf)) == TlsFiles("c", "k")
    both = {**conf, "rest.ssl.client-authentication": "true"}
    with pytest.raises(CertificateError, match=r"rest\.ssl\.ca-file"):
        tls_files(Configuration(both))
    assert tls_files(Configuration({**both, "rest.ssl.ca-file": "a"})) == TlsFiles("c", "k", "a")
    with pytest.raises(CertificateError, match=r"rest\.ssl\.certificate-file"):
        tls_files(Configuration({"rest.ssl.enabled": "true"}))


def test_invalid_files_of_a_client_are_refused_by_name(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_text("no PEM")
    for given in (noise, tmp_path / "none"):
        with pytest.raises(UsageError, match=given.name):
            client_tls(given)
        with pytest.raises(UsageError, match=given.name):
            client_tls(None, given)
