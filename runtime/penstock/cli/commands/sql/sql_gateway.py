"""`penstock sql-gateway`: Flink's SQL gateway, for clients of its REST API."""

from __future__ import annotations

import ipaddress
import os
import threading
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.access.connection import TokenFile
from penstock.cli.commands.sessions.remote_run import configured_master
from penstock.cli.commands.sql.sql import Cluster, create_session
from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.errors import UsageError

if TYPE_CHECKING:
    from penstock.table.gateway.sessions import Sessions

_CHECK_S = 30.0
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the gateway. 0 means any free port.")]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address on which the gateway listens.")]
Required = Annotated[
    Path | None,
    typer.Option(
        "--require-token", metavar="FILE", help="File with the bearer token that clients of the gateway must send."
    ),
]


def sql_gateway(
    port: Port = 8083,
    host: Host = "localhost",
    require_token: Required = None,
    master: Cluster = None,
    token_file: TokenFile = None,
    define: Definitions = None,
) -> None:
    """Serve Flink's REST API for SQL until Ctrl-C. Queries and jobs run on a session cluster, or in this process.

    A client can execute any SQL with the rights of this process. So an address that other machines reach needs --require-token.
    """
    if require_token is None and not _is_local(host):
        raise UsageError(
            f"--host {host} can be reached from other machines, and the gateway requires no token",
            remedy="pass --require-token FILE, or listen on localhost",
        )
    settings = parse_definitions(define)
    master = master or os.environ.get("PENSTOCK_MASTER") or configured_master(settings)
    import uvicorn

    from penstock.common.configuration import set_command_line
    from penstock.jobmanager.process.session.default_executor import DefaultExecutor
    from penstock.rest.auth import AllowedHosts, TokenFile
    from penstock.rest.transport.connections import Connections
    from penstock.rest.transport.listener import listen, server_url
    from penstock.table.gateway.app import create_app
    from penstock.table.gateway.sessions import Sessions

    set_command_line(settings)
    context = copy_context()
    executor = DefaultExecutor()
    sessions = Sessions(lambda: context.copy().run(create_session, master, token_file, executor))
    token = None if require_token is None else TokenFile(str(require_token))
    app = create_app(sessions, token, AllowedHosts([host]) if token is None else None)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http=Connections().protocol(),  # type: ignore[arg-type]  # uvicorn calls this function like a protocol class
    )
    listener = listen(host, port)
    typer.echo(f"The SQL gateway listens on {server_url(host, listener.getsockname()[1], tls=False)}")
    stopped = threading.Event()
    threading.Thread(target=_close_idle, args=(sessions, stopped), name="idle-sessions", daemon=True).start()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        stopped.set()
        sessions.close_all()


def _close_idle(sessions: Sessions, stopped: threading.Event) -> None:
    while not stopped.wait(_CHECK_S):
        sessions.close_idle()


def _is_local(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> [_is_local(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.com")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
