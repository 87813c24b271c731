"""The bundle of a program that the session fetches: a file from a server or an object store, or a commit of a git repository."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

import httpx

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.program.fetch import fetch_program
from penstock.common.program.git import Credentials, fetch_commit
from penstock.rest import facts
from penstock.rest.errors import Unavailable

_EPOCH = (1980, 1, 1, 0, 0, 0)
_REQUIREMENTS = "requirements.txt"
_PERMANENT = (
    *(PenstockError, FileNotFoundError, PermissionError, IsADirectoryError),
    *(ValueError, LookupError, ArithmeticError, httpx.InvalidURL),
)
"""Causes that another attempt does not remove."""
_LATER = frozenset((408, 425, 429))
"""Status codes below 500 with which a server asks for another attempt."""
_SCHEMES = ("https://", "http://", "s3://", "s3a://")


def fetched_bundle(request: facts.FetchRequest, max_unpacked: int | None = None) -> bytes:
    """Fetch a program, and return an archive with its files. Equal files give equal archives.

    The packages of the program are only those of the request, also if the source has a list of packages.

    Args:
        max_unpacked: maximum size of the content of an archive in bytes. None means `archives.MAX_BYTES`.

    Raises:
        InvalidJob: the source does not exist, access is denied, or its content is not that of the request.
        Unavailable: the server does not respond.
    """
    if not request.url.startswith(_SCHEMES):
        raise InvalidJob(
            f"the URL {request.url[:100]!r} cannot be fetched",
            remedy=f"use a URL that starts with {', '.join(_SCHEMES)}",
        )
    with tempfile.TemporaryDirectory(prefix="penstock-fetch-") as name:
        folder = Path(name, "program")
        folder.mkdir()
        try:
            if request.commit:
                access = Credentials(request.username, request.password) if request.password else None
                fetch_commit(request.url, request.commit, request.path, folder, access)
            else:
                fetch_program(request.url, request.sha256, folder, max_unpacked=max_unpacked)
        except InvalidJob as error:
            if _may_succeed_later(error):
                raise Unavailable(error.message, remedy=error.remedy) from error
            raise
        _check_files(request.url, folder)
        (folder / _REQUIREMENTS).write_text("".join(f"{line}\n" for line in request.requirements), encoding="utf-8")
        return _packed(folder, Path(name, "program.zip"))


def _check_files(url: str, folder: Path) -> None:
    """Refuse files that a bundle cannot contain.

    Raises:
        InvalidJob: a file is a link, or the list of packages is a folder.
    """
    link = next((path for path in sorted(folder.rglob("*")) if path.is_symlink()), None)
    if link is not None:
        raise InvalidJob(
            f"{str(link.relative_to(folder))!r} in {url} is a link, which a program of a session cannot contain",
            remedy="replace it by the file that it points to",
        )
    if (folder / _REQUIREMENTS).is_dir():
        raise InvalidJob(f"{_REQUIREMENTS!r} in {url} is a folder", remedy="rename it")


def _may_succeed_later(error: InvalidJob) -> bool:
    """Return whether a server has failed, and not the request."""
    cause = error.__cause__
    if isinstance(cause, httpx.HTTPStatusError):
        return cause.response.is_server_error or cause.response.status_code in _LATER
    return cause is not None and not isinstance(cause, _PERMANENT)


def _packed(folder: Path, target: Path) -> bytes:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(str(path.relative_to(folder)), _EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    return target.read_bytes()
