"""The token of a REST API on loopback: commands of the same user find it, and only the right address receives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.common.credentials.local_token import LocalToken, dashboard_link, find_token
from penstock.common.errors import ClusterError


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_token_is_found_by_the_name_and_the_address() -> None:
    token = LocalToken()
    token.publish("127.0.0.1", 8081)
    for url in (
        "http://localhost:8081",
        "http://localhost:8081/",
        "http://127.0.0.1:8081",
        "http://job.localhost:8081",
    ):
        assert find_token(url) == ("http://127.0.0.1:8081", token.value)
    # The certificate proves the host name, so the name must not change.
    assert find_token("https://localhost:8081") == ("https://localhost:8081", token.value)
    assert dashboard_link("http://localhost:8081") == f"http://127.0.0.1:8081/#token={token.value}"
    token.remove()
    token.remove()
    assert find_token("http://localhost:8081") is None
    assert dashboard_link("http://localhost:8081") == "http://localhost:8081"


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8082", "http://[::1]:8081", "http://example.com:8081", "https://localhost:8082", "https://example.com:8081", "http://localhost:8081/proxy", "http://localhost:x", "http://../x"],
)  # fmt: skip
def test_a_token_is_not_sent_to_another_address(url: str) -> None:
    token = LocalToken()
    token.publish("127.0.0.1", 8081)
    assert find_token(url) is None


def test_the_file_of_a_killed_process_does_not_disturb_others() -> None:
    killed = LocalToken()
    killed.publish("::1", 8081)
    token = LocalToken()
    token.publish("::1", 8081)
    assert find_token("http://localhost:8081") == ("http://[::1]:8081", token.value)
    killed.remove()
    assert find_token("http://localhost:8081") == ("http://[::1]:8081", token.value)


def test_the_next_process_removes_the_token_of_a_killed_process(tmp_path: Path) -> None:
    publish = "from penstock.common.credentials.local_token import LocalToken; import os, signal\n"
    publish += "LocalToken().publish('127.0.0.1', 8081); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", publish], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False)
    assert find_token("http://localhost:8081") is not None
    token = LocalToken()
    token.publish("127.0.0.1", 8082)
    assert find_token("http://localhost:8081") is None
    token.remove()
    assert not list(token.path.parent.parent.iterdir())


def test_files_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = LocalToken()
        token.publish("127.0.0.1", 1)
    finally:
        os.umask(old)
    folders = {token.path.parent, token.path.parent.parent}
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}
    files = {path for folder in folders for path in folder.iterdir()} - folders
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"penstock-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(ClusterError, match="is not a folder"):
        LocalToken()
