"""Storage endpoints and answers that the author of a FlinkJob chooses affect only that job."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.store.object_store import PermanentFailure
from penstock.checkpoint.store.s3_store import S3Store
from penstock_operator.api.limits.endpoints import AllowedEndpoints
from penstock_operator.errors import StorageError
from penstock_operator.storage import penstock as storage_module
from penstock_operator.storage.bulkheads import MOST_ENDPOINTS, MOST_OF_A_TENANT, Bulkheads
from penstock_operator.storage.penstock import PenstockStorages
from tests.unit.operator.contexts import make_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock_operator.api.flinkjob import FlinkJobSpec

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


class Endless(BaseHTTPRequestHandler):
    """A server that sends an endless object."""

    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.end_headers()
        try:
            while Endless.sent < 1 << 30:
                self.wfile.write(bytes(1 << 16))
                Endless.sent += 1 << 16
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def at(endpoint: str) -> FlinkJobSpec:
    return make_spec(configuration={"s3.endpoint": endpoint})


def test_an_object_that_is_too_large_is_not_read_completely() -> None:
    with served(Endless) as endpoint:
        store = S3Store({"endpoint_url": endpoint, "key": "a", "secret": "b", "read_limit": 1 << 20})
        with pytest.raises(PermanentFailure, match="larger than 1 MiB"):
            store.get("s3://bucket/chk-1/_metadata")
    assert Endless.sent < 1 << 28


def test_smaller_objects_pass_the_limit() -> None:
    class Small(Endless):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"abc")

    with served(Small) as endpoint:
        store = S3Store({"endpoint_url": endpoint, "key": "a", "secret": "b", "read_limit": 1 << 20})
        assert store.get("s3://bucket/chk-1/_metadata") == b"abc"


def test_a_hanging_endpoint_delays_only_its_own_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "CALL_TIMEOUT", 0.3)
    over = threading.Event()

    async def scenario() -> float:
        storages = PenstockStorages()
        hanging, healthy = storages(at("http://hangs:9000"), KEYS), storages(at("http://healthy:9000"), KEYS)
        reads = [asyncio.create_task(hanging._run("s3://bucket/x", over.wait)) for _ in range(40)]  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        for _ in range(20):
            assert await healthy._run("s3://bucket/x", lambda: 1) == 1  # type: ignore[attr-defined]
        took = time.monotonic() - began
        answers = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(answer, StorageError) for answer in answers)
        over.set()
        storages.close()
        return took

    assert asyncio.run(scenario()) < 0.25


def test_endpoints_without_calls_release_their_threads() -> None:
    pools = Bulkheads(threads=1, most=2)
    for number in range(10):
        assert pools.submit(f"http://{number}", lambda: 7).result() == 7
        time.sleep(0.005)
    assert pools.endpoints <= 2
    pools.close()


def test_too_many_hanging_endpoints_are_refused_by_name() -> None:
    over = threading.Event()
    pools = Bulkheads(threads=1, most=2)
    waiting = [pools.submit(f"http://{number}", over.wait) for number in range(2)]
    with pytest.raises(StorageError, match=r"storage\.endpoints"):
        pools.submit("http://third", lambda: 1)
    assert not waiting[0].done()
    over.set()
    for future in waiting:
        future.result()
    pools.close()


def test_a_tenant_with_many_hanging_endpoints_uses_only_its_share() -> None:
    over = threading.Event()
    pools = Bulkheads(threads=1)
    waiting = [pools.submit(f"http://{number}", over.wait, "hostile") for number in range(MOST_OF_A_TENANT)]
    for number in range(MOST_OF_A_TENANT, 2 * MOST_ENDPOINTS):
        with pytest.raises(StorageError, match="namespace hostile"):
            pools.submit(f"http://{number}", over.wait, "hostile")
    assert pools.submit("http://healthy", lambda: 7, "other").result(timeout=5) == 7
    waiting.append(pools.submit("http://0", lambda: True, "hostile"))  # an endpoint with a pending call
    over.set()
    assert all(future.result() for future in waiting)
    assert pools.submit("http://new", lambda: 7, "hostile").result(timeout=5) == 7
    pools.close()


def test_each_call_to_storage_counts_for_the_namespace_of_its_job() -> None:
    async def scenario() -> None:
        over, storages = threading.Event(), PenstockStorages()
        hanging = [storages(at(f"http://hangs-{n}:9000"), KEYS, "hostile") for n in range(MOST_OF_A_TENANT + 1)]
        reads = [asyncio.create_task(storage._run("s3://bucket/x", over.wait)) for storage in hanging]  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        with pytest.raises(StorageError, match="namespace hostile"):
            await reads[-1]
        healthy = storages(at("http://hangs-0:9000"), KEYS, "other")
        assert healthy is not hanging[0]
        over.set()
        await asyncio.gather(*reads[:-1])
        assert await healthy._run("s3://bucket/x", lambda: 1) == 1  # type: ignore[attr-defined]
        storages.close()

    asyncio.run(scenario())


ALLOWED = AllowedEndpoints(("https://s3.example.com", "http://minio:9000", "https://*.storage.example.com"))


@pytest.mark.parametrize(
    "endpoint",
    ["https://s3.example.com", "https://S3.example.com:443/", "http://minio:9000", "https://a.storage.example.com"],
)
def test_allowed_endpoints_are_accepted(endpoint: str) -> None:
    ALLOWED.check(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://s3.example.com",
        "https://s3.example.com:8443",
        "https://s3.example.com.evil.org",
        "https://s3.example.com@evil.org",
        "https://storage.example.com",
        "https://evilstorage.example.com",
        "http://minio:9001",
        "http://kubernetes.default.svc",
        "http://10.0.0.1",
        "gopher://minio:9000",
        "http://minio:99999",
    ],
)
def test_other_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(StorageError, match=r"s3\.endpoint"):
        ALLOWED.check(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://169.254.169.254",
        "http://169.254.169.254:80/latest",
        "http://[fe80::1]:80",
        "http://[::ffff:169.254.169.254]",
        "http://metadata.google.internal",
        "http://METADATA.google.internal.",
    ],
)
def test_metadata_services_are_never_called(endpoint: str) -> None:
    with pytest.raises(StorageError, match="metadata service"):
        AllowedEndpoints().check(endpoint)


def test_an_endpoint_in_a_secret_is_compared_with_the_list_as_well() -> None:
    storages = PenstockStorages(endpoints=ALLOWED)
    with pytest.raises(StorageError, match="not among the endpoints"):
        storages(make_spec(), {**KEYS, "AWS_ENDPOINT_URL": "http://10.0.0.1"})
    storages.close()
