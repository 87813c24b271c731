"""The token of a REST API that `python job.py` serves on loopback. Commands find the token in a file that only this
user can read.

Other users of the machine can reach loopback, too, so the API requires a token. The process that serves the API writes
the token to `TMPDIR/penstock-UID/rest`. The file's name has the address and port of the API. The process removes the
file when it ends. If a process was killed, the next process removes its file.

A client sends a token only to the address in the file's name. Another process that listens on a different address with
the same port does not get the token.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.folders.private_folder import private_folder, temporary_folder

_FOLDER = "rest"


def new_token() -> str:
    return secrets.token_urlsafe(32)


class LocalToken:
    """A token in a file.

    Args:
        value: the token. An empty value means a new token.

    Raises:
        ClusterError: the folder of the file belongs to another user.
    """

    def __init__(self, value: str = "") -> None:
        self._folder = private_folder(temporary_folder() / _FOLDER)
        self._new_folder = OwnedFolder(str(self._folder), "new-")
        _remove_abandoned(self._folder)
        self.path = Path(self._new_folder.path) / "token"
        self.value = value or new_token()
        self._published: Path | None = None
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(self.value)

    def publish(self, address: str, port: int) -> None:
        """Let commands of this user find the token. If a killed process has left a file for this port, replace the
        file.
        """
        target = self._folder / f"{address}_{port}"
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        os.link(self.path, target)
        self._published = target

    def remove(self) -> None:
        """Remove the token and its published file. May be called twice."""
        published, self._published = self._published, None
        if published is not None:
            with contextlib.suppress(OSError):
                if published.samefile(self.path):  # otherwise another process has the port now
                    published.unlink()
        self._new_folder.remove()


def _remove_abandoned(folder: Path) -> None:
    """Remove the tokens of processes that have ended. A published token is a hard link to the file in the folder of its
    process. If that folder was removed, the link is the only name.
    """
    for path in folder.glob("*_*"):
        with contextlib.suppress(OSError):
            if path.stat().st_nlink == 1:
                path.unlink()


def find_token(url: str) -> tuple[str, str] | None:
    """Return the address and the token of an API that a process of this user serves on loopback.

    Args:
        url: `http://localhost:8081` or `https://localhost:8081`, or with an address of loopback.

    Returns:
        The URL to send the token to, and the token. An http URL names the address; an https URL keeps the host name,
        which the certificate proves. None if no token exists or the URL names another machine.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    folder = Path(temporary_folder()) / _FOLDER
    if parts.scheme not in ("http", "https") or parts.path.strip("/") or not folder.is_dir():
        return None
    for address in _loopback(host):
        with contextlib.suppress(OSError):
            token = (private_folder(folder) / f"{address}_{port}").read_text().strip()
            if parts.scheme == "https":
                return url.rstrip("/"), token
            shown = f"[{address}]" if ":" in address else address
            return f"http://{shown}:{port}", token
    return None


def published_urls() -> list[str]:
    """Return the URLs of the APIs whose tokens this user's processes have published. Some of the processes may have been killed."""
    folder = Path(temporary_folder()) / _FOLDER
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    found = []
    for name in names:
        address, _, port = name.rpartition("_")
        if address and port.isdigit():
            found.append(f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}")
    return found


def dashboard_link(url: str) -> str:
    """Return the URL for a browser, with the token that `find_token` finds. Without a token, return the URL itself."""
    found = find_token(url) if url else None
    return url if found is None else f"{found[0]}/#token={found[1]}"


def _loopback(host: str) -> list[str]:
    """Return the loopback addresses of a host name."""
    if host == "localhost" or host.endswith(".localhost"):
        return ["127.0.0.1", "::1"]
    try:
        return [host] if ipaddress.ip_address(host).is_loopback else []
    except ValueError:
        return []


def is_loopback(host: str) -> bool:
    """Return whether an API that listens on this host is reached from this machine only."""
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4][0]
    except OSError:
        return False
    return ipaddress.ip_address(str(found).partition("%")[0]).is_loopback
