"""Which JobManager a command speaks to: -m, --token-file and the environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.errors import UsageError

if TYPE_CHECKING:
    from penstock.cli.client import RestClient

DEFAULT_MASTER = "http://localhost:8081"
ENDED = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""States of a job."""

Master = Annotated[
    str,
    typer.Option("-m", "--master", envvar="PENSTOCK_MASTER", metavar="URL", help="REST address of the JobManager."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="PENSTOCK_TOKEN_FILE", metavar="FILE", help="File with the cluster's bearer token."
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the outcome.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, the beginning of it, or the job's name.")]


def connect(master: str, token_file: Path | None) -> RestClient:
    """
    Raises:
        UsageError: the token file cannot be read.
    """
    from penstock.cli.client import RestClient  # 14 MB, of which a TaskManager's process needs none

    token = None
    if token_file is not None:
        try:
            token = token_file.read_text().strip()
        except OSError as error:
            raise UsageError(
                f"the token file {token_file} cannot be read: {error.strerror}",
                remedy="give a readable file with --token-file or PENSTOCK_TOKEN_FILE",
            ) from None
    return RestClient(master, token)
