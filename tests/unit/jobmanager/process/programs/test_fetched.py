"""A session fetches a program from a server, and tells a wrong request from a server that does not respond."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from penstock.common.errors import InvalidJob
from penstock.jobmanager.process.programs.store.fetched import fetched_bundle
from penstock.rest import facts
from penstock.rest.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


def archive(*, has_requirements: bool = False) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("job.py", "print(1)\n")
        made.writestr("mine/tools.py", "A = 1\n")
        if has_requirements:
            made.writestr("requirements.txt", "other==1\n")
    return packed.getvalue()


def archive_with_a_link() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        made.addfile(tarfile.TarInfo("mine/tools.py"))
        link = tarfile.TarInfo("mine/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "tools.py"
        made.addfile(link)
    return packed.getvalue()


def archive_with_a_folder() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("requirements.txt/base.txt", "other==1\n")
    return packed.getvalue()


CONTENT = {
    "/a.zip": archive(),
    "/b.zip": archive(has_requirements=True),
    "/job.py": b"print(2)\n",
    "/links.tar.gz": archive_with_a_link(),
    "/folder.zip": archive_with_a_folder(),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Serve the programs over HTTP, and yield the address. `/503.zip` and `/429.zip` stand for a server that has failed or is busy."""

    class Programs(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = CONTENT.get(self.path, b"")
            failures = {"/503.zip": 503, "/429.zip": 429}
            self.send_response(200 if content else failures.get(self.path, 404))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Programs) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{started.server_address[1]}"
        started.shutdown()


def request(server: str, path: str, requirements: tuple[str, ...] = ()) -> facts.FetchRequest:
    digest = hashlib.sha256(CONTENT.get(path, b"")).hexdigest()
    return facts.FetchRequest("totals", server + path, digest, requirements=requirements)


def files(bundle: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as packed:
        return {name: packed.read(name).decode() for name in packed.namelist()}


def test_an_archive_becomes_a_bundle_with_the_packages_of_the_request(server: str) -> None:
    found = fetched_bundle(request(server, "/b.zip", ("rich==14.0", "--no-index")))
    assert files(found) == {
        "job.py": "print(1)\n",
        "mine/tools.py": "A = 1\n",
        "requirements.txt": "rich==14.0\n--no-index\n",
    }


def test_equal_programs_are_equal_bundles(server: str) -> None:
    assert fetched_bundle(request(server, "/a.zip")) == fetched_bundle(request(server, "/b.zip"))


def test_a_module_becomes_a_bundle(server: str) -> None:
    assert files(fetched_bundle(request(server, "/job.py"))) == {"job.py": "print(2)\n", "requirements.txt": ""}


def test_an_archive_that_unpacks_to_too_much_is_refused(server: str) -> None:
    with pytest.raises(InvalidJob, match="unpacks to more than"):
        fetched_bundle(request(server, "/a.zip"), 10)


def test_another_content_is_refused(server: str) -> None:
    with pytest.raises(InvalidJob, match="has the SHA-256"):
        fetched_bundle(facts.FetchRequest("totals", f"{server}/a.zip", "0" * 64))


def test_a_missing_file_is_refused_and_a_failed_server_is_not(server: str) -> None:
    with pytest.raises(InvalidJob, match="404"):
        fetched_bundle(request(server, "/missing.zip"))
    with pytest.raises(Unavailable, match="503"):
        fetched_bundle(request(server, "/503.zip"))
    with pytest.raises(Unavailable, match="cannot be read"):
        fetched_bundle(request("http://127.0.0.1:1", "/a.zip"))


@pytest.mark.parametrize("commit", ["", "b" * 40])
@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "ftp://x/y"])
def test_files_of_the_machine_are_not_fetched(url: str, commit: str) -> None:
    with pytest.raises(InvalidJob, match="cannot be fetched"):
        fetched_bundle(facts.FetchRequest("totals", url, "0" * 64, commit))


def test_a_git_server_that_does_not_respond_is_no_error_of_the_request() -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        fetched_bundle(facts.FetchRequest("totals", "http://127.0.0.1:1/repository", commit="b" * 40))


def test_a_server_that_asks_for_a_later_request_is_no_error_of_the_request(server: str) -> None:
    with pytest.raises(Unavailable, match="429"):
        fetched_bundle(request(server, "/429.zip"))


def test_links_are_refused_and_not_dropped(server: str) -> None:
    with pytest.raises(InvalidJob, match=r"'mine/link\.py' in http.* is a link"):
        fetched_bundle(request(server, "/links.tar.gz"))


def test_a_folder_cannot_be_the_list_of_packages(server: str) -> None:
    with pytest.raises(InvalidJob, match=r"'requirements\.txt' in http.* is a folder"):
        fetched_bundle(request(server, "/folder.zip"))
