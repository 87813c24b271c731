"""The contract of every object store. It runs against directories, memory and a real S3 server."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.store.object_store import ObjectExists, ObjectMissing, ObjectStore, join_url

if TYPE_CHECKING:
    from pathlib import Path

WRITERS = 12


class ObjectStoreContract:
    """Tests that subclasses complete with the fixtures `store` and `root`, a URL that no other test uses."""

    def test_a_stored_object_is_read_listed_and_measured(self, store: ObjectStore, root: str) -> None:
        store.put(join_url(root, "a/one"), b"1")
        store.put(join_url(root, "a/b/two"), b"22")
        assert store.get(join_url(root, "a/b/two")) == b"22"
        assert [(info.url, info.size) for info in store.list_objects(join_url(root, "a"))] == [
            (join_url(root, "a/b/two"), 2),
            (join_url(root, "a/one"), 1),
        ]
        info = store.head(join_url(root, "a/one"))
        assert info.size == 1
        assert info.modified is not None

    def test_list_shows_only_objects_in_the_folder(self, store: ObjectStore, root: str) -> None:
        store.put(join_url(root, "chk-1/_metadata"), b"")
        store.put(join_url(root, "chk-10/_metadata"), b"")
        assert [info.url for info in store.list_objects(join_url(root, "chk-1"))] == [join_url(root, "chk-1/_metadata")]

    def test_folders_are_named_without_their_contents(self, store: ObjectStore, root: str) -> None:
        for path in ("chk-1/_metadata", "chk-2/_metadata", "shared/x", "latest"):
            store.put(join_url(root, path), b"x")
        assert store.list_folders(root) == ["chk-1", "chk-2", "shared"]

    def test_missing_objects_are_not_found(self, store: ObjectStore, root: str) -> None:
        assert store.list_objects(join_url(root, "none")) == []
        assert store.list_folders(join_url(root, "none")) == []
        for read in (store.get, store.head):
            with pytest.raises(ObjectMissing):
                read(join_url(root, "none/x"))
        with pytest.raises(ObjectMissing):
            store.copy(join_url(root, "none/x"), join_url(root, "none/y"))
        store.delete(join_url(root, "none/x"))

    def test_a_put_replaces_an_object(self, store: ObjectStore, root: str) -> None:
        url = join_url(root, "latest")
        store.put(url, b"chk-1")
        store.put(url, b"chk-2")
        assert store.get(url) == b"chk-2"

    def test_a_conditional_put_does_not_replace_an_object(self, store: ObjectStore, root: str) -> None:
        url = join_url(root, "leader/1")
        store.put(url, b"first", if_absent=True)
        with pytest.raises(ObjectExists):
            store.put(url, b"second", if_absent=True)
        assert store.get(url) == b"first"

    def test_one_of_many_concurrent_conditional_puts_wins(self, store: ObjectStore, root: str) -> None:
        for round in range(3):
            url = join_url(root, f"leader/{round}")

            def put(writer: int, url: str = url) -> int | None:
                try:
                    store.put(url, b"%d" % writer * 1000, if_absent=True)
                except ObjectExists:
                    return None
                return writer

            with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
                winners = [writer for writer in pool.map(put, range(WRITERS)) if writer is not None]
            assert len(winners) == 1
            assert store.get(url) == b"%d" % winners[0] * 1000

    def test_a_deleted_object_is_missing(self, store: ObjectStore, root: str) -> None:
        url = join_url(root, "shared/x")
        store.put(url, b"x")
        store.delete(url)
        store.delete(url)
        with pytest.raises(ObjectMissing):
            store.get(url)

    def test_many_objects_are_deleted_in_one_call(self, store: ObjectStore, root: str) -> None:
        urls = [join_url(root, f"shared/{number}") for number in range(40)]
        for url in urls[:30]:
            store.put(url, b"x")
        store.put(join_url(root, "shared/kept"), b"x")
        assert store.delete_many(urls) == {}, "those that were not there are gone as well"
        assert [info.url for info in store.list_objects(root)] == [join_url(root, "shared/kept")]
        assert store.delete_many([]) == {}

    def test_names_that_must_be_escaped_are_deleted_with_the_others(self, store: ObjectStore, root: str) -> None:
        urls = [join_url(root, f"shared/{name}") for name in ("a b", "a&b<c>", "ä", "a%20b", "a+b")]
        for url in urls:
            store.put(url, b"x")
        assert store.delete_many(urls) == {}
        assert store.list_objects(root) == []

    @pytest.mark.parametrize(
        ("offset", "size", "expected"),
        [(0, 3, b"012"), (4, 3, b"456"), (7, 3, b"789"), (8, 5, b"89"), (10, 4, b""), (20, 4, b"")],
    )
    def test_a_range_is_read(self, store: ObjectStore, root: str, offset: int, size: int, expected: bytes) -> None:
        url = join_url(root, "shared/x")
        store.put(url, b"0123456789")
        assert store.get_range(url, offset, size) == expected
        with pytest.raises(ObjectMissing):
            store.get_range(join_url(root, "shared/none"), offset, size)

    def test_a_copy_is_independent_of_its_source(self, store: ObjectStore, root: str) -> None:
        source, target = join_url(root, "shared/x"), join_url(root, "savepoint-1/shared/x")
        store.put(source, b"content")
        store.copy(source, target)
        store.delete(source)
        assert store.get(target) == b"content"

    def test_files_are_uploaded_and_downloaded(self, store: ObjectStore, root: str, tmp_path: Path) -> None:
        content = bytes(range(256)) * 4096
        (tmp_path / "up").write_bytes(content)
        url = join_url(root, "shared/file")
        store.put_file(str(tmp_path / "up"), url)
        store.get_file(url, str(tmp_path / "down"))
        assert (tmp_path / "down").read_bytes() == content
        assert store.head(url).size == len(content)
        with pytest.raises(ObjectMissing):
            store.get_file(join_url(root, "none"), str(tmp_path / "none"))

    def test_an_empty_object_is_an_object(self, store: ObjectStore, root: str) -> None:
        store.put(join_url(root, "shared/empty"), b"")
        assert store.get(join_url(root, "shared/empty")) == b""
        assert [info.size for info in store.list_objects(join_url(root, "shared"))] == [0]
