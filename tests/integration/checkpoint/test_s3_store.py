"""The contract of object stores on a real S3 server, and the features that only S3 has."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.store.object_store import ObjectStore, PermanentFailure, TransientFailure, join_url
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy
from penstock.checkpoint.store.s3_store import S3Store
from penstock.common.errors import StorageError
from tests.integration.checkpoint.conftest import BUCKET, REQUEST_TIMEOUT
from tests.unit.checkpoint.store.store_contract import ObjectStoreContract

if TYPE_CHECKING:
    from pathlib import Path

    from tools.servers.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def store(s3_options: dict[str, Any]) -> S3Store:
    return S3Store(s3_options)


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class TestS3Store(ObjectStoreContract):
    @pytest.fixture
    def store(self, s3_options: dict[str, Any]) -> ObjectStore:
        return S3Store(s3_options)

    @pytest.fixture
    def root(self) -> str:
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def test_one_of_twelve_concurrent_clients_wins(s3_options: dict[str, Any], root: str) -> None:
    """Give each client separate connections, like separate JobManagers."""
    clients = [RetryingStore(S3Store(s3_options)) for _ in range(12)]
    for round in range(5):
        url = join_url(root, f"leader/{round}")
        won: list[int] = []
        barrier = threading.Barrier(12)

        def put(number: int, url: str = url, won: list[int] = won, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            if clients[number].put_if_absent(url, b"client %d" % number):
                won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert clients[0].get(url) == b"client %d" % won[0]


def test_large_files_are_uploaded_in_parts(store: S3Store, root: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * (110 << 12)  # 110 MiB: above the size of a single request
    (tmp_path / "up").write_bytes(content)
    url = join_url(root, "shared/large")
    store.put_file(str(tmp_path / "up"), url)
    assert store.head(url).size == len(content)
    store.get_file(url, str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == content
    store.copy(url, join_url(root, "savepoint/large"))
    assert store.head(join_url(root, "savepoint/large")).size == len(content)


def test_listings_continue_past_a_page(store: S3Store, root: str) -> None:
    for number in range(1005):
        store.put(join_url(root, f"shared/{number:04d}"), b"")
    assert len(store.list_objects(join_url(root, "shared"))) == 1005


def test_a_bucket_that_does_not_exist_is_reported(store: S3Store) -> None:
    retrying = RetryingStore(store)
    for attempt in (
        lambda: retrying.get("s3://no-such-bucket/x"),
        lambda: retrying.put("s3://no-such-bucket/x", b""),
        lambda: retrying.list_objects("s3://no-such-bucket/x"),
        lambda: retrying.list_folders("s3://no-such-bucket/x"),
    ):
        with pytest.raises(StorageError, match="the bucket does not exist"):
            attempt()


def test_wrong_keys_are_reported(s3_options: dict[str, Any], root: str) -> None:
    store = RetryingStore(S3Store({**s3_options, "secret": "wrong"}))
    with pytest.raises(StorageError, match=r"(?s)SignatureDoesNotMatch.*remedy: check .* the credentials"):
        store.put(join_url(root, "x"), b"")


def test_a_refused_connection_is_a_transient_failure(s3_options: dict[str, Any], root: str) -> None:
    store = S3Store({**s3_options, "endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(TransientFailure, match="no answer"):
        store.get(join_url(root, "x"))


def test_a_request_to_a_server_that_does_not_respond_times_out(
    s3: S3Server, impatient: dict[str, Any], root: str
) -> None:
    store = S3Store(impatient)
    RetryingStore(store).put(join_url(root, "x"), b"x")
    s3.pause()
    try:
        for request in (
            lambda: store.get(join_url(root, "x")),
            lambda: store.put(join_url(root, "y"), b"y", if_absent=True),
            lambda: store.list_objects(root),
            lambda: store.delete(join_url(root, "z")),
        ):
            began = time.monotonic()
            with pytest.raises(TransientFailure):
                request()
            assert time.monotonic() - began < 3 * REQUEST_TIMEOUT
    finally:
        s3.resume()
    assert RetryingStore(store).get(join_url(root, "x")) == b"x"


def test_a_conditional_put_during_an_outage_is_won_by_its_sender(
    s3: S3Server, impatient: dict[str, Any], root: str
) -> None:
    """The server executes requests that it received while it was stopped. The retry then meets its first attempt."""
    store = RetryingStore(S3Store(impatient), RetryPolicy(retry_for=30, pause=0.2))
    store.put(join_url(root, "warm"), b"")
    s3.pause()
    timer = threading.Timer(2 * REQUEST_TIMEOUT, s3.resume)
    timer.start()
    try:
        assert store.put_if_absent(join_url(root, "leader/1"), b"me")
    finally:
        timer.join()
    assert not store.put_if_absent(join_url(root, "leader/1"), b"you")


def test_an_unknown_option_value_is_a_permanent_failure(s3_options: dict[str, Any], root: str) -> None:
    store = S3Store({**s3_options, "config_kwargs": {"nonsense": True}})
    with pytest.raises(PermanentFailure, match="nonsense"):
        store.get(join_url(root, "x"))
