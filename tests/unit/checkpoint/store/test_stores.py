"""Object stores that need no server: directories and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from botocore.loaders import JSONFileLoader

from penstock.checkpoint.store.fsspec_store import FsspecStore
from penstock.checkpoint.store.local_store import TEMPORARY_SUFFIX, LocalStore
from penstock.checkpoint.store.object_store import (
    ObjectMissing,
    ObjectStore,
    PermanentFailure,
    Refused,
    TransientFailure,
    join_url,
    normalize_url,
)
from penstock.checkpoint.store.retrying_store import RetryingStore
from penstock.checkpoint.store.s3_store import S3Store
from penstock.checkpoint.store.schemes import open_store, prepare_store
from penstock.common.errors import StorageError
from tests.unit.checkpoint.store.store_contract import ObjectStoreContract
from tests.unit.checkpoint.support import DictStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TestLocalStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return LocalStore()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/root"

    def test_no_temporary_file_remains(self, store: ObjectStore, root: str, tmp_path: Path) -> None:
        store.put(join_url(root, "x"), b"1", if_absent=True)
        store.put(join_url(root, "x"), b"2")
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["x"]

    def test_an_object_is_complete_as_soon_as_it_is_visible(
        self, store: ObjectStore, root: str, tmp_path: Path
    ) -> None:
        content = b"x" * (1 << 20)
        seen: list[int] = []
        done = threading.Event()
        path = tmp_path / "root" / "big"

        def watch() -> None:
            while not done.is_set():
                try:
                    seen.append(os.path.getsize(path))
                except FileNotFoundError:
                    continue

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(20):
            store.put(join_url(root, "big"), content, if_absent=True)
            store.delete(join_url(root, "big"))
        done.set()
        watcher.join()
        assert set(seen) <= {len(content)}

    def test_a_crash_during_a_put_leaves_no_object_of_that_name(
        self, store: ObjectStore, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            pass

        def killed(*_: object) -> None:
            raise Killed

        monkeypatch.setattr(os, "link", killed)
        with pytest.raises(Killed):
            store.put(join_url(root, "leader/1"), b"me", if_absent=True)
        with pytest.raises(ObjectMissing):
            store.get(join_url(root, "leader/1"))

    def test_a_leftover_of_a_killed_writer_is_listed_under_another_name(self, store: ObjectStore, root: str) -> None:
        store.put(join_url(root, f"shared/x.123{TEMPORARY_SUFFIX}"), b"half")
        assert [info.url for info in store.list_objects(join_url(root, "shared"))] == [
            join_url(root, f"shared/x.123{TEMPORARY_SUFFIX}")
        ]

    def test_a_folder_disappears_with_its_last_object(self, store: ObjectStore, root: str, tmp_path: Path) -> None:
        store.put(join_url(root, "chk-1/_metadata"), b"x")
        store.delete(join_url(root, "chk-1/_metadata"))
        assert not (tmp_path / "root" / "chk-1").exists()

    def test_puts_and_deletes_in_one_folder_are_safe_together(self, store: ObjectStore, root: str) -> None:
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                for _ in range(50):
                    store.put(join_url(root, "f", name), b"x")
                    store.delete(join_url(root, "f", name))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_a_path_through_a_file_is_refused(self, store: ObjectStore, root: str) -> None:
        store.put(join_url(root, "file"), b"x")
        with pytest.raises(PermanentFailure, match="not a directory"):
            store.put(join_url(root, "file/below"), b"x")

    def test_the_upload_of_a_missing_file_is_an_error(self, store: ObjectStore, root: str) -> None:
        with pytest.raises(PermanentFailure, match=r"/nowhere/x\.sst to upload does not exist"):
            store.put_file("/nowhere/x.sst", join_url(root, "x"))


class TestMemoryStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FsspecStore("memory")

    @pytest.fixture
    def root(self) -> str:
        return f"memory://{uuid.uuid4().hex}/root"


class TestDictStore(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return DictStore()

    @pytest.fixture
    def root(self) -> str:
        return "dict://root"


def test_the_scheme_selects_the_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    assert isinstance(open_store("memory://x"), FsspecStore)


def test_an_unknown_scheme_names_the_remedy() -> None:
    with pytest.raises(StorageError, match=r"(?s)'gopher'.*remedy: use s3://, file://"):
        open_store("gopher://x")


def test_options_unknown_to_a_driver_are_named() -> None:
    store = open_store("s3://bucket", {"config_kwargs": {"nonsense": 1}})
    with pytest.raises(PermanentFailure, match="nonsense"):
        store.list_folders("s3://bucket")


def test_only_drivers_that_pass_the_condition_to_the_server_are_trusted() -> None:
    assert FsspecStore("memory").conditional_puts
    assert not FsspecStore("local").conditional_puts


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("s3://bucket/x/", "s3://bucket/x"),
        ("S3A://bucket/x", "s3://bucket/x"),
        ("file:/data/x", "file:///data/x"),
        ("file:///data/./x/", "file:///data/x"),
        ("/data/x", "file:///data/x"),
    ],
)
def test_urls_are_normalized(given: str, expected: str) -> None:
    assert normalize_url(given) == expected


def test_an_empty_url_is_refused() -> None:
    with pytest.raises(StorageError, match="empty storage path"):
        normalize_url("  ")


class TestS3DeleteObjects:
    """Requests that delete several objects. The response has status 200 and contains the outcome of each key."""

    URLS = ("s3://bucket/job/shared/a", "s3://bucket/job/shared/b", "s3://bucket/job/shared/c")

    @staticmethod
    def store(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Any]) -> tuple[S3Store, list[str]]:
        store = S3Store({"key": "k", "secret": "s"})
        requests: list[str] = []

        def call(name: str, *arguments: Any, **_: Any) -> Any:
            requests.append(str(arguments[0]) if name == "call_s3" else name)
            return answer(requests[-1])

        monkeypatch.setattr(store, "_call", call)
        return store, requests

    def test_keys_that_were_not_deleted_are_reported_with_the_reason(self, monkeypatch: pytest.MonkeyPatch) -> None:
        errors = [
            {"Key": "job/shared/a", "Code": "AccessDenied", "Message": "no"},
            {"Key": "job/shared/b", "Code": "InternalError", "Message": "later"},
            {"Key": "job/shared/c", "Code": "NoSuchKey", "Message": ""},
        ]
        store, requests = self.store(monkeypatch, lambda _: {"Errors": errors})
        failed = store.delete_many(self.URLS)
        assert {url: type(failure) for url, failure in failed.items()} == {
            self.URLS[0]: PermanentFailure,
            self.URLS[1]: TransientFailure,
        }
        assert "AccessDenied" in failed[self.URLS[0]].reason
        assert requests == ["delete_objects"]

    def test_a_failed_key_with_another_spelling_may_be_any_requested_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        errors = [{"Key": "job%2Fshared%2Fa", "Code": "InternalError", "Message": "later"}]
        store, _ = self.store(monkeypatch, lambda _: {"Errors": errors})
        failed = store.delete_many(self.URLS)
        assert {url: type(failure) for url, failure in failed.items()} == dict.fromkeys(self.URLS, TransientFailure)

    @pytest.mark.parametrize(("code", "status"), [("NotImplemented", 501), ("MissingContentMD5", 400)])
    def test_a_server_without_the_operation_receives_single_deletions(
        self, monkeypatch: pytest.MonkeyPatch, code: str, status: int
    ) -> None:
        def answer(name: str) -> Any:
            if name == "delete_objects":
                raise ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, name)
            return None

        store, requests = self.store(monkeypatch, answer)
        assert store.delete_many(self.URLS) == {}
        assert store.delete_many(self.URLS) == {}
        assert requests == ["delete_objects", *["rm_file"] * 6]

    def test_a_refused_request_is_refused_for_all_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def answer(name: str) -> Any:
            raise ClientError({"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}, name)

        store, _ = self.store(monkeypatch, answer)
        with pytest.raises(Refused, match="AccessDenied"):
            store.delete_many(self.URLS)
        assert set(RetryingStore(store).delete_many(self.URLS)) == set(self.URLS)


def test_the_description_of_s3_is_read_once_for_all_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_store("s3")

    def read(*_: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr(JSONFileLoader, "load_file", read)
    store = open_store("s3://bucket/x", {"endpoint_url": "http://127.0.0.1:9", "key": "a", "secret": "b"})
    with pytest.raises(TransientFailure, match="no answer"):
        store.get("s3://bucket/x")


def test_preparation_of_a_store_starts_no_thread_and_no_event_loop() -> None:
    code = (
        "import asyncio, sys, threading; from penstock.checkpoint.store.schemes import prepare_store; prepare_store('s3'); "
        "assert 's3fs' in sys.modules; assert threading.active_count() == 1, threading.enumerate(); asyncio.get_event_loop()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_requests_use_the_profile_of_the_user() -> None:
    store = open_store("s3://bucket/x", {"endpoint_url": "http://127.0.0.1:9", "profile": "nobody"})
    with pytest.raises(PermanentFailure, match=r"ProfileNotFound.*nobody"):
        store.get("s3://bucket/x")
