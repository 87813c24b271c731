"""The connection of a command to a JobManager: -m, --token-file, --ca-file and the environment."""

from __future__ import annotations

import inspect
import ssl
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from penstock.cli.client import RestClient

DEFAULT_MASTER = "http://localhost:8081"

Master = Annotated[
    str,
    typer.Option(
        "-m",
        "--master",
        envvar="PENSTOCK_MASTER",
        metavar="URL",
        help="REST address of the JobManager, or addresses of all its masters, separated by commas.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="PENSTOCK_TOKEN_FILE", metavar="FILE", help="File with the cluster's bearer token."
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the result.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, the beginning of it, or the job's name.")]


CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        envvar="PENSTOCK_CA_FILE",
        metavar="FILE",
        help="PEM file with the CA of an https URL. Default: the CAs of the system.",
    ),
]
ClientCertificate = Annotated[
    Path | None,
    typer.Option(
        "--client-certificate",
        envvar="PENSTOCK_CLIENT_CERTIFICATE",
        metavar="FILE",
        help="PEM file with a client certificate and its key, for a JobManager that requires one.",
    ),
]
ServerName = Annotated[
    str | None,
    typer.Option(
        "--tls-server-name",
        envvar="PENSTOCK_TLS_SERVER_NAME",
        metavar="NAME",
        help="Name that the certificate must have, if it is not the host of the URL (behind a port-forward).",
    ),
]
_OPTIONS: dict[str, Any] = {"ca_file": CaFile, "client_certificate": ClientCertificate, "server_name": ServerName}


@dataclass(frozen=True)
class TlsOptions:
    """Options with which a command verifies the JobManager and proves its identity."""

    ca_file: Path | None = None
    client_certificate: Path | None = None
    server_name: str | None = None


_tls_options: ContextVar[TlsOptions | None] = ContextVar("tls_options", default=None)


def with_tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that also has the options for TLS. `connect` uses them."""

    @wraps(command)
    def run(*args: object, **named: Any) -> None:
        token = _tls_options.set(TlsOptions(**{name: named.pop(name) for name in _OPTIONS}))
        try:
            command(*args, **named)
        finally:
            _tls_options.reset(token)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    parameters = [*signature.parameters.values(), *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def connect(master: str, token_file: Path | None) -> RestClient:
    """Return a client for the JobManager, with the TLS options of the current command.

    Raises:
        UsageError: a file cannot be read.
    """
    from penstock.cli.client import RestClient  # the client takes 14 MB, and a TaskManager's process does not need it

    token = None
    if token_file is not None:
        try:
            token = token_file.read_text().strip()
        except OSError as error:
            raise UsageError(
                f"the token file {token_file} cannot be read: {error.strerror}",
                remedy="pass a readable file with --token-file or PENSTOCK_TOKEN_FILE",
            ) from None
    options = _tls_options.get() or TlsOptions()
    tls = client_tls(options.ca_file, options.client_certificate)
    return RestClient(master, token, tls=tls, server_name=options.server_name)


def client_tls(
    ca_file: str | os.PathLike[str] | None, client_certificate: str | os.PathLike[str] | None = None
) -> ssl.SSLContext | None:
    """Return the TLS settings of a client, which verifies certificate and host name. None means the default settings with the system's CAs.

    Args:
        ca_file: PEM file. Only its CAs are trusted.
        client_certificate: PEM file with certificate and key.

    Raises:
        UsageError: a file cannot be read, or is not PEM.
    """
    if ca_file is None and client_certificate is None:
        return None
    context = ssl.create_default_context()
    if ca_file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:
            raise UsageError(
                f"the CA file {ca_file} cannot be used: {error.strerror or error}",
                remedy="pass a PEM file with --ca-file or PENSTOCK_CA_FILE",
            ) from None
    if client_certificate is not None:
        try:
            context.load_cert_chain(client_certificate, password=lambda: "")
        except OSError as error:
            raise UsageError(
                f"the client certificate {client_certificate} cannot be used: {error.strerror or error}",
                remedy="pass a PEM file with the certificate and its key, without a passphrase",
            ) from None
    return context
