"""Fetch of one commit from a git server.

The module sends the two requests that a job needs. One finds the commit of a branch or tag, and the other fetches the
files of a commit without its history. Both use version 2 of git's protocol over HTTP. The module is not a complete git
client: it runs no hooks, follows no redirects, and writes no submodules or links. It connects only to the server in the
URL. All answers are bounded.

See https://git-scm.com/docs/protocol-v2 and https://git-scm.com/docs/gitformat-pack.
"""

from __future__ import annotations

import re
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

import httpx

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.program.git_pack import Pack

MAX_PACK_BYTES = 256 << 20
"""Maximum size of a commit's files, compressed."""
MAX_BYTES = 1 << 30
"""Maximum size of the files in the folder that is written."""
MAX_FILES = 100_000
_MAX_LIST_BYTES = 4 << 20
"""Maximum size of an answer other than the files."""
_MAX_DEPTH = 64
_TIMEOUT_S = 60.0
"""Seconds without a byte after which a request fails."""
_RESOLVE_S = 60.0
"""Maximum seconds for the answer about a branch or a tag, however it is divided into packets."""
_FLUSH, _DELIMITER, _END = 0, 1, 2
_DATA, _PROGRESS = 1, 2
_COMMIT = re.compile("[0-9a-f]{40}")
_MAX_NAME_BYTES = 255
"""Maximum length of a file's name on Linux."""


class Credentials(NamedTuple):
    """User name and password, or token, of a git server."""

    username: str
    password: str


def resolve_ref(url: str, ref: str, credentials: Credentials | None = None, *, timeout_s: float = _TIMEOUT_S) -> str:
    """Return the commit of a branch or a tag, as 40 hexadecimal digits.

    Args:
        ref: the name of a branch or a tag, or a complete name such as `refs/heads/main`.

    Raises:
        InvalidJob: the server cannot be read, the reference does not exist, or the name is both a branch and a tag.
    """
    names = [ref] if ref.startswith("refs/") else [f"refs/heads/{ref}", f"refs/tags/{ref}"]
    command = [b"peel\n", *(f"ref-prefix {name}\n".encode() for name in names)]
    found = {}
    server = _Server(url, credentials, timeout_s, total_s=min(timeout_s, _RESOLVE_S))
    with server, server.send("ls-refs", command) as packets:
        for kind, line in packets:
            if kind == _FLUSH:
                break
            commit, name, *attributes = [*line.decode(errors="replace").split(), "", ""]
            peeled = [a.removeprefix("peeled:") for a in attributes if a.startswith("peeled:")]
            if name in names:
                found[name] = _checked(url, (peeled or [commit])[0])
    if len(found) > 1:
        raise InvalidJob(f"{ref} is a branch and a tag of {url}", remedy=f"write refs/heads/{ref} or refs/tags/{ref}")
    if not found:
        raise InvalidJob(f"{url} has no branch and no tag {ref}", remedy="correct the name, or push it")
    return next(iter(found.values()))


def _checked(url: str, commit: str) -> str:
    if not _COMMIT.fullmatch(commit):
        text = f"{url} returned the commit {commit[:100]!r}, which is not a SHA-1 hash"
        raise InvalidJob(text, remedy="use a repository with SHA-1 hashes, git's default format")
    return commit


def fetch_commit(url: str, commit: str, path: str, folder: Path, credentials: Credentials | None = None) -> None:
    """Write the files of one commit into a folder.

    Args:
        commit: the id of the commit, 40 hexadecimal digits. The content is checked against this id.
        path: the folder in the repository whose content is written, or an empty string for all files.

    Raises:
        InvalidJob: the server cannot be read, or does not have the commit; or the path is missing, too large, or has a
            link or a submodule.
    """
    arguments = [b"no-progress\n", b"ofs-delta\n", f"want {commit}\n".encode(), b"deepen 1\n", b"done\n"]
    with tempfile.TemporaryFile() as file:
        with _Server(url, credentials, _TIMEOUT_S) as server, server.send("fetch", arguments) as packets:
            _save_pack(url, packets, file)
        with _damage_reported(url), Pack(file) as pack:
            tree = pack.tree_of_commit(commit)
            for name in PurePosixPath(path).parts:
                entry = next((e for e in pack.entries(tree) if e.name == name), None)
                if entry is None or not stat.S_ISDIR(entry.mode):
                    raise InvalidJob(f"{url} has no folder {path!r} in commit {commit}", remedy="correct the path")
                tree = entry.id
            _Checkout(url, pack).write(tree, folder, PurePosixPath())


@contextmanager
def _damage_reported(url: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidJob(
            f"{url} sent a damaged commit: {error}", remedy="check the repository with git fsck"
        ) from error


def _save_pack(url: str, packets: Iterator[tuple[int, bytes]], file: BinaryIO) -> None:
    size, started = 0, False
    for kind, line in packets:
        if not started:
            started = line == b"packfile\n"
            continue
        if kind == _FLUSH:
            return
        channel, data = int.from_bytes(line[:1]), line[1:]
        if channel == _DATA:
            size += len(data)
            if size > MAX_PACK_BYTES:
                remedy = "use a smaller repository, or set source.url to an archive"
                raise InvalidJob(f"{url} has more than {MAX_PACK_BYTES >> 20} MiB in one commit", remedy=remedy)
            file.write(data)
        elif channel != _PROGRESS:
            raise _refused(url, data)
    raise InvalidJob(f"{url} ended its answer early", remedy="try again, or check the server")


class _Server:
    """The connection to one repository.

    Args:
        timeout_s: seconds without a byte after which a request fails.
        total_s: seconds for all requests together. None means no limit.
    """

    def __init__(
        self, url: str, credentials: Credentials | None, timeout_s: float, total_s: float | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._total_s = total_s
        self._is_late = False
        self._socket: socket.socket | None = None
        self._timer = None if total_s is None else threading.Timer(total_s, self._end)
        self._client = httpx.Client(
            auth=(credentials.username, credentials.password) if credentials else None,
            headers={
                "Git-Protocol": "version=2",
                "User-Agent": "git/2 (penstock)",  # servers detect git clients by "git/"
                "Accept-Encoding": "identity",
            },
            timeout=timeout_s,
            follow_redirects=False,
        )

    def __enter__(self) -> _Server:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._client.close()

    def _end(self) -> None:
        """End the connection of a server that sends its answer too slowly. A timeout of httpx limits only the time
        between two bytes.
        """
        self._is_late = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._is_late:
                self._end()

    @contextmanager
    def send(self, command: str, arguments: list[bytes]) -> Iterator[Iterator[tuple[int, bytes]]]:
        """Send a command and return the packets of the answer. A packet is its kind (0 for the end of a part) and its
        content.
        """
        with self._answer("GET", "info/refs?service=git-upload-pack", b"", "advertisement") as packets:
            lines = {line.strip() for _, line in packets}
            if b"object-format=sha256" in lines:
                remedy = "use a repository with SHA-1 hashes, or set source.url to an archive"
                raise InvalidJob(f"{self._url} has SHA-256 hashes, which are not supported", remedy=remedy)
            if b"version 2" not in lines:
                remedy = "use a server with git 2.18 or later, or set source.url to an archive"
                raise InvalidJob(f"{self._url} does not support version 2 of git's protocol", remedy=remedy)
        head = [f"command={command}\n".encode(), b"agent=penstock\n"]
        body = b"".join([*map(_packet, head), b"0001", *map(_packet, arguments), b"0000"])
        with self._answer("POST", "git-upload-pack", body, "result") as packets:
            yield packets

    @contextmanager
    def _answer(self, method: str, path: str, body: bytes, kind: str) -> Iterator[Iterator[tuple[int, bytes]]]:
        expected = f"application/x-git-upload-pack-{kind}"
        headers = {"Content-Type": "application/x-git-upload-pack-request"} if body else {}
        url, extensions = f"{self._url}/{path}", {"trace": self._trace}
        try:
            with self._client.stream(
                method, url, content=body or None, headers=headers, extensions=extensions
            ) as response:
                self._check(response, expected)
                bounded = None if kind == "result" and b"command=fetch" in body else _MAX_LIST_BYTES
                yield _packets(self._url, self._content(response), bounded)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = f"{self._url} cannot be read: {type(error).__name__}: {error}"
            if self._is_late:
                text = f"{self._url} has not completed its answer within {self._total_s:g} s"
            raise InvalidJob(text, remedy="check the address, the network and the credentials") from error

    def _content(self, response: httpx.Response) -> Iterator[bytes]:
        yield from response.iter_raw()
        if self._is_late:  # without a length, the end of the connection is the end of the answer
            raise httpx.ReadTimeout("")

    def _check(self, response: httpx.Response, expected: str) -> None:
        if response.is_redirect:
            place = _place(response.headers.get("Location", ""))
            raise InvalidJob(f"{self._url} redirects to {place}", remedy="write that address, if you trust it")
        if response.status_code in (401, 403, 404):
            remedy = "check the address, and the user name and the password in the Secret of source.git.secretName"
            raise InvalidJob(f"{self._url} returned {response.status_code}", remedy=remedy)
        response.raise_for_status()
        if response.headers.get("Content-Type", "") != expected:
            raise InvalidJob(f"{self._url} is not a git repository", remedy="write the address that git clone uses")


def _place(location: str) -> str:
    """Return the repository in a redirect, without credentials."""
    try:
        target = urlsplit(location)
    except ValueError:
        return "an address that is not valid"
    return f"{target.scheme}://{target.hostname}{target.path}".removesuffix("/info/refs")


def _packet(content: bytes) -> bytes:
    return b"%04x" % (len(content) + 4) + content


def _packets(url: str, chunks: Iterator[bytes], limit: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield the packets of an answer. Each packet starts with its length, as four hexadecimal digits."""
    buffer, size = bytearray(), 0

    def have(count: int) -> bool:
        nonlocal size
        while len(buffer) < count:
            chunk = next(chunks, None)
            if chunk is None:
                return False
            size += len(chunk)
            if limit is not None and size > limit:
                raise InvalidJob(f"{url} has too many references", remedy="set source.git.commit")
            buffer.extend(chunk)
        return True

    while have(4):
        try:
            length = int(buffer[:4], 16)
        except ValueError:
            length = -1
        if length in (_FLUSH, _DELIMITER, _END):
            del buffer[:4]
            yield length, b""
            continue
        if length < 5 or not have(length):
            raise InvalidJob(f"{url} sent an answer that is not git's protocol", remedy="check the address")
        content = bytes(buffer[4:length])
        del buffer[:length]
        if content.startswith(b"ERR "):
            raise _refused(url, content[4:])
        yield length, content


def _refused(url: str, message: bytes) -> PenstockError:
    text = " ".join(message.decode(errors="replace").split())[:300]
    remedy = "check that the commit was pushed, and that the server returns commits by their hash"
    return InvalidJob(f"{url} refused: {text}", remedy=remedy)


def _is_file_name(name: str) -> bool:
    if name.casefold() in ("", ".", "..", ".git") or "/" in name:
        return False
    return name.isprintable() and len(name.encode()) <= _MAX_NAME_BYTES


class _Checkout:
    """The files of a commit that are written to a folder, with their limits."""

    def __init__(self, url: str, pack: Pack) -> None:
        self._url, self._pack = url, pack
        self._entries = self._bytes = 0

    def write(self, tree: str, folder: Path, place: PurePosixPath) -> None:
        """Write the files below a tree."""
        if len(place.parts) > _MAX_DEPTH:
            raise InvalidJob(f"{self._url} has more than {_MAX_DEPTH} nested folders", remedy="set source.git.path")
        names = set()
        for entry in self._pack.entries(tree):
            inside = place / entry.name
            self._entries += 1
            if self._entries > MAX_FILES:
                raise self._too_large()
            if not _is_file_name(entry.name):
                raise InvalidJob(f"{self._url} has a file with the name {entry.name!r}", remedy="rename it")
            if entry.name in names:
                raise ValueError(f"{str(inside)!r} occurs twice")
            names.add(entry.name)
            if stat.S_ISDIR(entry.mode):
                (folder / entry.name).mkdir(exist_ok=True)
                self.write(entry.id, folder / entry.name, inside)
            elif stat.S_ISREG(entry.mode):
                self._write_file(entry.id, folder / entry.name, executable=bool(entry.mode & stat.S_IXUSR))
            else:
                kind = "symbolic link" if stat.S_ISLNK(entry.mode) else "submodule"
                remedy = f"replace it by files, or set source.git.path to a folder without {kind}s"
                raise InvalidJob(f"{str(inside)!r} in {self._url} is a {kind}", remedy=remedy)

    def _write_file(self, blob: str, file: Path, *, executable: bool) -> None:
        content = self._pack.content(blob, "blob")
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            raise self._too_large()
        file.write_bytes(content)
        file.chmod(0o755 if executable else 0o644)

    def _too_large(self) -> PenstockError:
        limits = f"{MAX_FILES} files and folders, or {MAX_BYTES >> 20} MiB"
        return InvalidJob(f"{self._url} has more than {limits}", remedy="set source.git.path to a smaller folder")
