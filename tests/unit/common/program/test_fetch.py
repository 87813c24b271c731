"""A program is fetched from HTTP or a file system, and only with the expected checksum."""

from __future__ import annotations

import functools
import hashlib
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common.errors import InvalidJob
from penstock.common.program.fetch import fetch_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    into = tmp_path / "into"
    into.mkdir()
    return into


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "served" / "program.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("job.py", "print(1)\n")
        made.writestr("mine/tools.py", "A = 1\n")
    return path


@pytest.fixture
def server(archive: Path) -> Iterator[str]:
    """Serve the folder of the archive over HTTP, and yield its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    handler = functools.partial(Quiet, directory=str(archive.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{started.server_address[1]}"
        started.shutdown()


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_archive_is_unpacked_from_http(server: str, archive: Path, folder: Path) -> None:
    fetch_program(f"{server}/program.zip", checksum(archive), folder)
    assert names(folder) == ["job.py", "mine/tools.py"]


def test_a_module_is_copied_from_a_file_system(tmp_path: Path, folder: Path) -> None:
    module = tmp_path / "job.py"
    module.write_text("print(2)\n")
    fetch_program(f"file://{module}", checksum(module).upper(), folder)
    assert (folder / "job.py").read_text() == "print(2)\n"


def test_another_content_is_refused_with_both_checksums(server: str, archive: Path, folder: Path) -> None:
    expected = checksum(archive)
    with zipfile.ZipFile(archive, "a") as changed:
        changed.writestr("more.py", "")
    with pytest.raises(InvalidJob, match=f"has the SHA-256 {checksum(archive)}, and {expected} is expected"):
        fetch_program(f"{server}/program.zip", expected, folder)
    assert names(folder) == []


def test_a_file_that_is_too_large_is_refused(server: str, archive: Path, folder: Path) -> None:
    with pytest.raises(InvalidJob, match="has more than 100 bytes"):
        fetch_program(f"{server}/program.zip", checksum(archive), folder, max_bytes=100)


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py"])
def test_a_member_outside_of_the_archive_is_refused(server: str, archive: Path, folder: Path, name: str) -> None:
    with zipfile.ZipFile(archive, "a") as changed:
        changed.writestr(name, "")
    url = f"{server}/program.zip"
    with pytest.raises(InvalidJob, match=f"'{name}' in {url} is outside of the archive"):
        fetch_program(url, checksum(archive), folder)
    assert names(folder) == []


def test_a_file_that_is_missing_or_no_archive_is_named(server: str, archive: Path, folder: Path) -> None:
    with pytest.raises(InvalidJob, match=r"absent.zip cannot be read: .*404"):
        fetch_program(f"{server}/absent.zip", "0" * 64, folder)
    text = archive.with_name("notes.txt")
    text.write_text("no program")
    with pytest.raises(InvalidJob, match=r"notes.txt is not an archive of a known type"):
        fetch_program(f"{server}/notes.txt", checksum(text), folder)


def test_the_command_fetches_and_exits_with_1_for_a_wrong_checksum(server: str, archive: Path, folder: Path) -> None:
    url = f"{server}/program.zip"
    arguments = ["fetch", url, "--into", str(folder), "--sha256"]
    wrong = CliRunner().invoke(app, [*arguments, "0" * 64])
    assert wrong.exit_code == 1
    assert "is expected" in wrong.output
    right = CliRunner().invoke(app, [*arguments, checksum(archive)])
    assert right.exit_code == 0, right.output
    assert names(folder) == ["job.py", "mine/tools.py"]
