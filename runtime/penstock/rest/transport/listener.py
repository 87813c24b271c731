"""The socket of the REST server. The socket can exist before the server, because the server's imports take longer than a small job."""

from __future__ import annotations

import selectors
import socket

from penstock.common.errors import ClusterError

_BACKLOG = 128


class Listener:
    """Socket on which a server starts later. Clients can connect at once, and the server responds when it has started.

    Args:
        host: address to listen on, such as `localhost`.
        port: 0 means any free port. If another process uses the port, the listener takes any free port.

    Raises:
        ClusterError: the address cannot be used.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self.socket = listen(host, port)
        except ClusterError:
            self.socket = listen(host, 0)
        self.address, self.port = self.socket.getsockname()[:2]
        self.url = server_url(host, self.port)
        self._woken, self._wakes = socket.socketpair()

    def wait_for_client(self, timeout_s: float) -> bool:
        """Wait for a connection, at most `timeout_s` seconds. Return False only if the listener was closed during the wait."""
        with self._woken, selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            is_closed = any(key.fileobj is self._woken for key, _ in selector.select(timeout_s))
        if is_closed:
            self.socket.close()
        return not is_closed

    def close(self) -> None:
        """End the wait for a client. The socket then belongs to the server, or is closed if no server was started. The method may be called
        twice.
        """
        self._wakes.close()


def server_url(host: str, port: int, *, tls: bool = False) -> str:
    """Return the URL for clients on this machine.

    >>> server_url("0.0.0.0", 8081), server_url("::1", 8081, tls=True)
    ('http://localhost:8081', 'https://[::1]:8081')
    """
    shown = "localhost" if host in ("", "0.0.0.0", "::") else host
    return f"{'https' if tls else 'http'}://{f'[{shown}]' if ':' in shown else shown}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections.

    Raises:
        ClusterError: the address cannot be used, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ClusterError(
            f"the REST API cannot listen on {host}: {error}",
            remedy="set rest.bind-address to an address of this machine",
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ClusterError(
            f"the REST API cannot listen on {host}:{port}: {error.strerror or error}",
            remedy="stop the process that uses the port, or set rest.port to a free port, or to 0 for any free port",
        ) from None
    return listener
