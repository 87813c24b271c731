"""The S3 server keeps the guarantees that checkpoints need, as seen by the client that Penstock uses."""

from __future__ import annotations

import concurrent.futures
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import s3fs

from tests.tools.servers.commands import started
from tools.errors import BuildFailed, NotRunning, ToolError
from tools.servers.s3 import ENDPOINT_VARIABLE, S3Server, ensure_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.s3

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        running.create_bucket("bucket")
        yield running


@pytest.fixture
def fs(server: S3Server) -> Any:
    return s3fs.S3FileSystem(**server.storage_options(), skip_instance_cache=True, use_listings_cache=False)


def test_written_objects_are_read_and_listed(fs: Any) -> None:
    fs.pipe_file("bucket/a/one", b"1")
    fs.pipe_file("bucket/a/two", b"22")
    assert fs.cat_file("bucket/a/two") == b"22"
    assert sorted(fs.ls("bucket/a", detail=False)) == ["bucket/a/one", "bucket/a/two"]
    fs.rm("bucket/a", recursive=True)
    assert not fs.exists("bucket/a/one")


def test_second_conditional_put_is_refused(fs: Any) -> None:
    fs.pipe_file("bucket/fence/1", b"first", mode="create")
    with pytest.raises(FileExistsError):
        fs.pipe_file("bucket/fence/1", b"second", mode="create")
    assert fs.cat_file("bucket/fence/1") == b"first"


def test_exactly_one_of_many_concurrent_conditional_puts_wins(server: S3Server) -> None:
    def put(number: int) -> bool:
        client = s3fs.S3FileSystem(**server.storage_options(), skip_instance_cache=True)
        try:
            client.pipe_file("bucket/fence/race", str(number).encode(), mode="create")
        except FileExistsError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(put, range(8))) == [False] * 7 + [True]


def test_a_multipart_upload_appears_completely_or_not_at_all(fs: Any) -> None:
    data = bytes(range(256)) * (12 * MIB // 256)
    with fs.open("bucket/large", "wb", block_size=5 * MIB) as out:
        out.write(data[: 6 * MIB])
        assert not fs.exists("bucket/large")
        out.write(data[6 * MIB :])
    assert fs.info("bucket/large")["size"] == len(data)
    assert fs.cat_file("bucket/large", start=5 * MIB, end=5 * MIB + 256) == data[:256]


def test_conditional_put_holds_for_multipart_uploads(fs: Any) -> None:
    data = b"x" * (11 * MIB)
    fs.pipe_file("bucket/large-once", data, mode="create", chunksize=5 * MIB)
    with pytest.raises(FileExistsError):
        fs.pipe_file("bucket/large-once", data, mode="create", chunksize=5 * MIB)


def test_the_server_makes_copies(fs: Any) -> None:
    fs.pipe_file("bucket/source", b"state")
    fs.cp_file("bucket/source", "bucket/savepoint/target")
    assert fs.cat_file("bucket/savepoint/target") == b"state"


def test_the_environment_is_enough_for_a_client(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.exports().items():
        monkeypatch.setenv(name, value)
    client = s3fs.S3FileSystem(skip_instance_cache=True)
    client.pipe_file("bucket/env", b"found")
    assert client.cat_file("bucket/env") == b"found"


def test_wrong_key_is_refused(server: S3Server) -> None:
    client = s3fs.S3FileSystem(**{**server.storage_options(), "secret": "wrong"}, skip_instance_cache=True)
    with pytest.raises(PermissionError):
        client.cat_file("bucket/env")


def test_a_bucket_can_be_created_twice_and_a_bad_name_is_named(server: S3Server) -> None:
    server.create_bucket("bucket")
    with pytest.raises(ToolError, match="Bad_Name"):
        server.create_bucket("Bad_Name")


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Start a separate server, because the test must not change a server that the environment names."""
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    with S3Server(tmp_path / "s3") as running:
        yield running


def test_a_paused_server_responds_after_it_resumes(own_server: S3Server) -> None:
    own_server.create_bucket("bucket")
    own_server.pause()
    with socket.create_connection((own_server.host, own_server.port), timeout=0.5) as probe:
        probe.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(TimeoutError):
            probe.recv(1)
    own_server.resume()
    own_server.create_bucket("bucket")


def test_a_restarted_server_has_the_same_address_and_data(own_server: S3Server) -> None:
    own_server.create_bucket("bucket")
    client = s3fs.S3FileSystem(**own_server.storage_options(), skip_instance_cache=True)
    client.pipe_file("bucket/kept", b"kept")
    address = own_server.endpoint_url
    own_server.stop()
    with pytest.raises(NotRunning):
        own_server.pause()
    own_server.start()
    assert own_server.endpoint_url == address
    assert client.cat_file("bucket/kept") == b"kept"


def test_taken_port_is_named(own_server: S3Server, tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match=str(own_server.port)):
        S3Server(tmp_path / "other", own_server.port).start()


def test_missing_go_names_both_remedies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildFailed, match=f"install Go.*{ENDPOINT_VARIABLE}"):
        ensure_binary()


def test_server_of_the_environment_is_used(own_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, own_server.endpoint_url)
    with pytest.raises(ToolError, match="PENSTOCK_TEST_S3_ACCESS_KEY"):
        S3Server(Path("unused"))
    monkeypatch.setenv("PENSTOCK_TEST_S3_ACCESS_KEY", own_server.access_key)
    monkeypatch.setenv("PENSTOCK_TEST_S3_SECRET_KEY", own_server.secret_key)
    with S3Server(Path("unused")) as used:
        used.create_bucket("from-outside")
        assert used.exports() == own_server.exports()
        with pytest.raises(ToolError, match="was not started here"):
            used.pause()
    assert (own_server.root / "data" / "from-outside").is_dir()


def test_a_missing_server_of_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setenv("PENSTOCK_TEST_S3_ACCESS_KEY", "key")
    monkeypatch.setenv("PENSTOCK_TEST_S3_SECRET_KEY", "secret")
    with pytest.raises(NotRunning, match=r"127\.0\.0\.1:9"):
        S3Server(Path("unused")).start()


def test_the_command_line_starts_shows_and_stops_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)

    with started("s3", tmp_path, "--bucket", "demo") as settings:
        client = s3fs.S3FileSystem(
            key=settings["AWS_ACCESS_KEY_ID"],
            secret=settings["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=settings["AWS_ENDPOINT_URL"],
            skip_instance_cache=True,
        )
        assert client.ls("", detail=False) == ["demo"]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(settings["AWS_ENDPOINT_URL"].rsplit(":", 1)[1])), timeout=2)
