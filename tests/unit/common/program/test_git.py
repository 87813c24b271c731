"""One commit of a real git server is fetched, and nothing else of git takes effect."""

from __future__ import annotations

import hashlib
import itertools
import random
import socket
import subprocess
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.common.errors import InvalidJob
from penstock.common.program import git
from penstock.common.program.git import Credentials, fetch_commit, resolve_ref
from penstock.common.program.git_pack import Pack
from tests.git_server import GitServer, Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repositories" / "jobs")


@pytest.fixture
def server(repository: Repository) -> Iterator[GitServer]:
    with GitServer(repository.folder.parent) as started:
        yield started


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def url(server: GitServer) -> str:
    return f"{server.url}/jobs/.git"


@contextmanager
def dripping(answer: bytes) -> Iterator[str]:
    """Yield the URL of a server that sends a byte of its answer every 20 ms, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        connection.recv(65536)
                        for byte in itertools.chain(answer, itertools.repeat(ord("x"))):
                            connection.sendall(bytes([byte]))
                            time.sleep(0.02)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/jobs.git"


ADVERTISEMENT = b"HTTP/1.0 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\nfff0"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX: ", ADVERTISEMENT], ids=["in its head", "in its body"])
def test_a_server_that_never_completes_its_answer_is_left_in_time(answer: bytes) -> None:
    began = time.monotonic()
    with dripping(answer) as slow, pytest.raises(InvalidJob, match="within 3 s"):
        resolve_ref(slow, "main", timeout_s=3)
    assert time.monotonic() - began < 10


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_files_of_a_commit_are_written(repository: Repository, server: GitServer, into: Path) -> None:
    files = {"job.py": "print(1)\n", "mine/tools.py": "A = 1\n", "empty.txt": ""}
    commit = repository.commit(files)
    repository.commit({"job.py": "print(2)\n"})
    fetch_commit(url(server), commit, "", into)
    assert content(into) == files


def test_only_a_folder_of_the_commit_is_written(repository: Repository, server: GitServer, into: Path) -> None:
    commit = repository.commit({"job.py": "", "jobs/words/job.py": "print(1)\n", "jobs/words/a/b.py": "B = 1\n"})
    fetch_commit(url(server), commit, "jobs/words", into)
    assert content(into) == {"job.py": "print(1)\n", "a/b.py": "B = 1\n"}


def test_an_executable_file_remains_executable(repository: Repository, server: GitServer, into: Path) -> None:
    repository.commit({"run.sh": "true\n", "job.py": ""})
    (repository.folder / "run.sh").chmod(0o755)
    commit = repository.commit({})
    fetch_commit(url(server), commit, "", into)
    assert (into / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (into / "job.py").stat().st_mode & 0o777 == 0o644


def test_files_that_git_stores_as_differences_are_complete(
    repository: Repository, server: GitServer, into: Path
) -> None:
    """Similar large files are deltas of each other, in chains, in a pack that git has optimized."""
    numbers = random.Random(1)
    lines = [f"{numbers.random()}\n" for _ in range(5000)]
    files = {}
    for number in range(30):
        lines[numbers.randrange(5000)] = f"changed in {number}\n"
        files[f"data/{number}.txt"] = "".join(lines)
    commit = repository.commit(files)
    repository.git("repack", "-a", "-d", "-f", "--depth=50", "--window=50", "--quiet")
    packed = repository.git("verify-pack", "-v", *map(str, repository.folder.glob(".git/objects/pack/*.idx")))
    assert "chain length" in packed, "the test needs deltas"
    fetch_commit(url(server), commit, "", into)
    assert content(into) == files


def test_a_branch_and_tags_are_resolved_to_a_commit(repository: Repository, server: GitServer) -> None:
    first = repository.commit({"job.py": "1"})
    repository.git("tag", "v1")
    repository.git("tag", "--annotate", "v1-annotated", "--message", "first")
    second = repository.commit({"job.py": "2"})
    repository.git("branch", "main-2", "HEAD~1")
    assert resolve_ref(url(server), "main") == second
    assert resolve_ref(url(server), "v1") == first
    assert resolve_ref(url(server), "v1-annotated") == first, "the commit, not the object of the tag"
    assert resolve_ref(url(server), "refs/heads/main-2") == first


def test_a_name_of_a_branch_and_a_tag_must_be_complete(repository: Repository, server: GitServer) -> None:
    commit = repository.commit({"job.py": "1"})
    repository.git("tag", "main")
    with pytest.raises(InvalidJob, match="main is a branch and a tag"):
        resolve_ref(url(server), "main")
    assert resolve_ref(url(server), "refs/tags/main") == commit


def test_an_unknown_branch_is_named(repository: Repository, server: GitServer) -> None:
    repository.commit({"job.py": "1"})
    with pytest.raises(InvalidJob, match="has no branch and no tag production"):
        resolve_ref(url(server), "production")


def test_a_commit_that_the_server_does_not_have_is_named(repository: Repository, server: GitServer, into: Path) -> None:
    repository.commit({"job.py": "1"})
    with pytest.raises(InvalidJob, match=f"refused: upload-pack: not our ref {'a' * 40}"):
        fetch_commit(url(server), "a" * 40, "", into)


def test_a_folder_that_the_commit_does_not_have_is_named(repository: Repository, server: GitServer, into: Path) -> None:
    commit = repository.commit({"job.py": "1"})
    for path in ("jobs", "job.py", "../jobs", "/etc"):
        with pytest.raises(InvalidJob, match="has no folder"):
            fetch_commit(url(server), commit, path, into)
    assert content(into) == {}


def test_credentials_are_sent_and_their_absence_is_explained(
    repository: Repository, server: GitServer, into: Path
) -> None:
    commit = repository.commit({"job.py": "1"})
    server.password = "s3cret"
    with pytest.raises(InvalidJob, match="returned 401") as raised:
        resolve_ref(url(server), "main")
    assert "source.git.secretName" in str(raised.value.remedy)
    credentials = Credentials("me", "s3cret")
    assert resolve_ref(url(server), "main", credentials) == commit
    fetch_commit(url(server), commit, "", into, credentials)
    assert content(into) == {"job.py": "1"}


def test_a_redirect_is_refused_and_named(repository: Repository, server: GitServer, tmp_path: Path) -> None:
    repository.commit({"job.py": "1"})
    with GitServer(tmp_path) as elsewhere:
        server.redirect_to = elsewhere.url
        with pytest.raises(InvalidJob, match=r"redirects to http://127.0.0.1"):
            resolve_ref(url(server), "main", Credentials("me", "s3cret"))
        assert elsewhere.requests == []


def test_links_and_submodules_are_refused_and_can_be_left_out(
    repository: Repository, server: GitServer, into: Path
) -> None:
    repository.commit({"jobs/job.py": "1"})
    (repository.folder / "escape").symlink_to("/etc")
    linked = repository.commit({})
    with pytest.raises(InvalidJob, match=r"'escape' in .* is a symbolic link"):
        fetch_commit(url(server), linked, "", into)
    fetch_commit(url(server), linked, "jobs", into)
    assert (into / "job.py").exists()
    repository.git("rm", "--quiet", "escape")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{linked},other")
    repository.git("commit", "--quiet", "--message", "a submodule")
    with pytest.raises(InvalidJob, match=r"'other' in .* is a submodule"):
        fetch_commit(url(server), repository.git("rev-parse", "HEAD"), "", into)


def stored(repository: Repository, kind: str, data: bytes) -> str:
    command = ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
    return subprocess.check_output(command, cwd=repository.folder, input=data).decode().strip()


def committed(repository: Repository, tree: str) -> str:
    who = b"a <a@example.com> 1 +0000"
    commit = stored(repository, "commit", b"tree %s\nauthor %s\ncommitter %s\n\nbad\n" % (tree.encode(), who, who))
    repository.git("update-ref", "refs/heads/bad", commit)
    return commit


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "."])
def test_a_name_that_leaves_the_folder_is_refused(
    repository: Repository, server: GitServer, into: Path, name: str
) -> None:
    """git itself refuses to create such trees, so the test writes the objects."""
    blob = stored(repository, "blob", b"owned")
    inner = stored(repository, "tree", b"100644 config\0" + bytes.fromhex(blob))
    commit = committed(repository, stored(repository, "tree", f"40000 {name}\0".encode() + bytes.fromhex(inner)))
    with pytest.raises(InvalidJob, match="has a file with the name"):
        fetch_commit(url(server), commit, "", into)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ((b"100644 a", b"40000 a"), "'a' occurs twice"),
        ((b"40000 a", b"100644 a"), "'a' occurs twice"),
        ((b"100644 " + b"a" * 256,), "has a file with the name 'aaa"),
    ],
)
def test_a_tree_that_no_folder_can_hold_is_refused(
    repository: Repository, server: GitServer, into: Path, entries: tuple[bytes, ...], message: str
) -> None:
    blob, empty = stored(repository, "blob", b""), stored(repository, "tree", b"")
    ids = [empty if entry.startswith(b"4") else blob for entry in entries]
    data = b"".join(entry + b"\0" + bytes.fromhex(name) for entry, name in zip(entries, ids, strict=True))
    with pytest.raises(InvalidJob, match=message):
        fetch_commit(url(server), committed(repository, stored(repository, "tree", data)), "", into)


def test_a_redirect_to_an_address_that_is_not_valid_is_refused(server: GitServer) -> None:
    server.redirect_to = "http://["
    with pytest.raises(InvalidJob, match="redirects to an address that is not valid"):
        resolve_ref(url(server), "main")


def test_a_repository_with_other_hashes_is_explained(repository: Repository, server: GitServer) -> None:
    folder = repository.folder.parent / "new"
    repository.git("init", "--quiet", "--object-format=sha256", str(folder))
    with pytest.raises(InvalidJob, match="has SHA-256 hashes"):
        resolve_ref(f"{server.url}/new/.git", "main")


@pytest.mark.parametrize("commit", ["--into=/etc", "a" * 64, "-"])
def test_only_a_hash_is_a_commit(monkeypatch: pytest.MonkeyPatch, commit: str) -> None:
    """The commit becomes an argument of a command in the pods."""
    line = f"{commit} refs/heads/main\n".encode()
    monkeypatch.setattr(git._Server, "send", lambda *_: nullcontext(iter([(len(line), line), (0, b"")])))
    with pytest.raises(InvalidJob, match="which is not a SHA-1 hash"):
        resolve_ref("https://git.example.com/jobs", "main")


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 3), ("MAX_BYTES", 1000), ("MAX_PACK_BYTES", 1000)])
def test_a_commit_has_limits(
    repository: Repository,
    server: GitServer,
    into: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
) -> None:
    numbers = random.Random(1)
    commit = repository.commit({f"{n}.txt": str([numbers.random() for _ in range(20)]) for n in range(10)})
    monkeypatch.setattr(git, limit, value)
    with pytest.raises(InvalidJob, match="has more than"):
        fetch_commit(url(server), commit, "", into)


def test_a_list_of_references_has_a_limit(
    repository: Repository, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"job.py": ""})
    monkeypatch.setattr(git, "_MAX_LIST_BYTES", 100)
    with pytest.raises(InvalidJob, match="too many references"):
        resolve_ref(url(server), "main")


def test_a_page_that_is_no_repository_is_explained(server: GitServer) -> None:
    with pytest.raises(InvalidJob, match="returned 404"):
        resolve_ref(f"{server.url}/nothing", "main")


def test_a_server_that_does_not_respond_is_named() -> None:
    with pytest.raises(InvalidJob, match=r"http://127.0.0.1:9/jobs cannot be read"):
        resolve_ref("http://127.0.0.1:9/jobs", "main")


def test_a_damaged_pack_is_refused(repository: Repository, tmp_path: Path) -> None:
    """A changed, missing or additional byte anywhere in a pack is an error, and never an endless loop."""
    repository.commit({"job.py": "print(1)\n" * 50, "other.py": "print(2)\n" + "print(1)\n" * 50})
    repository.git("repack", "-a", "-d", "-f", "--quiet")
    (path,) = repository.folder.glob(".git/objects/pack/*.pack")
    whole = path.read_bytes()
    damaged, refused = tmp_path / "damaged.pack", 0
    for at in range(0, len(whole) - 20, 5):
        for data in (
            whole[:at],
            whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :],
            whole[:at] + b"x" + whole[at:],
        ):
            damaged.write_bytes(data)
            with damaged.open("rb") as file, pytest.raises(ValueError, match=r"checksum|empty|not valid"):
                Pack(file)
            damaged.write_bytes(data + hashlib.sha1(data).digest())
            try:
                with damaged.open("rb") as file, Pack(file):
                    pass  # another type of object, for example
            except (ValueError, IndexError):
                refused += 1
    assert refused > len(whole) / 2
    with path.open("rb") as file, Pack(file) as pack:
        assert pack.tree_of_commit(repository.git("rev-parse", "HEAD"))


def test_the_command_fetches_a_commit_with_credentials_from_the_environment(
    repository: Repository, server: GitServer, into: Path
) -> None:
    commit = repository.commit({"jobs/job.py": "print(1)\n"})
    server.password = "s3cret"
    arguments = ["fetch", url(server), "--commit", commit, "--path", "jobs", "--into", str(into)]
    environment = {"PENSTOCK_GIT_USERNAME": "me", "PENSTOCK_GIT_PASSWORD": "s3cret"}
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 0, result.output
    assert content(into) == {"job.py": "print(1)\n"}


def test_the_command_needs_a_checksum_or_a_commit(into: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "https://a/b.zip", "--into", str(into)])
    assert result.exit_code != 0
    assert "--sha256 or --commit" in result.output
