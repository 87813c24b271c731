"""Short requests that show whether a server responds."""

from __future__ import annotations

import http.client
import socket

from tools.servers.base.server import HOST


def listens(port: int, host: str = HOST) -> bool:
    """Return whether a server accepts connections on a port."""
    return answer(port, b"", 0, host) is not None


def answer(port: int, request: bytes, length: int, host: str = HOST) -> bytes | None:
    """Send a request and return the first ``length`` bytes of the response, or fewer if the server closes the connection.

    Return None if the server cannot be reached or does not respond within 3 s.
    """
    try:
        with socket.create_connection((host, port), timeout=3.0) as connection:
            connection.sendall(request)
            received = b""
            while len(received) < length:
                more = connection.recv(length - len(received))
                if not more:
                    break
                received += more
            return received
    except OSError:
        return None


def http_succeeds(port: int, path: str, headers: dict[str, str] | None = None) -> bool:
    """Return whether a GET request to this machine has a status below 300 within 3 s."""
    connection = http.client.HTTPConnection(HOST, port, timeout=3.0)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
