"""Fetch of a program: one file from HTTP or an object store, checked by its SHA-256 before any of it is unpacked."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

import fsspec
import httpx

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.program.archives import unpack

MAX_BYTES = 512 << 20
"""Maximum size of the file."""
_CHUNK = 1 << 20
_TIMEOUT_S = 60.0
"""Seconds without a byte after which the download fails."""


def fetch_program(
    url: str, sha256: str, folder: Path, *, max_bytes: int = MAX_BYTES, max_unpacked: int | None = None
) -> None:
    """Download a file and put its content into a folder: an archive is unpacked, and a module (`.py`) is copied.

    Args:
        url: `https://`, `http://`, `s3://`, `s3a://` or `file://`. Access to S3 comes from the environment, as for every AWS SDK.
        sha256: the checksum of the file, as 64 hexadecimal digits.
        max_unpacked: maximum size of the content of an archive in bytes. None means `archives.MAX_BYTES`.

    Raises:
        InvalidJob: the file cannot be read, is too large, has another checksum, or is neither an archive nor a module. The folder is
            unchanged, unless an archive is damaged.
    """
    name = PurePosixPath(urlsplit(url).path).name
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / (name or "program")
        digest = _download(url, file, max_bytes)
        if digest != sha256.lower():
            raise InvalidJob(
                f"{url} has the SHA-256 {digest}, and {sha256} is expected",
                remedy="check the source of the file, or set the new checksum",
            )
        if name.endswith(".py"):
            shutil.copy(file, folder / name)
            return
        try:
            unpack(file, folder, max_unpacked)
        except PenstockError as error:
            text = str(error.message).replace("add_python_archive: ", "").replace(str(file), url)
            raise InvalidJob(text, remedy=error.remedy) from error


def _download(url: str, file: Path, max_bytes: int) -> str:
    """Write the file and return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    try:
        with _opened(url) as chunks, file.open("wb") as out:
            for chunk in chunks:
                size += len(chunk)
                if size > max_bytes:
                    raise InvalidJob(
                        f"{url} has more than {max_bytes} bytes", remedy="put large files into an image or a volume"
                    )
                digest.update(chunk)
                out.write(chunk)
    except PenstockError:
        raise
    except Exception as error:  # each file system has its own errors
        raise InvalidJob(
            f"{url} cannot be read: {error}", remedy="check the address, the network and the credentials"
        ) from error
    return digest.hexdigest()


@contextmanager
def _opened(url: str) -> Iterator[Iterator[bytes]]:
    if urlsplit(url).scheme in ("http", "https"):
        plain = {"Accept-Encoding": "identity"}  # a server must not compress a file whose checksum is known
        with httpx.stream("GET", url, headers=plain, follow_redirects=True, timeout=_TIMEOUT_S) as response:
            response.raise_for_status()
            yield response.iter_raw(_CHUNK)
        return
    with fsspec.open(url.replace("s3a://", "s3://", 1), "rb") as file:
        yield _chunks(file)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
