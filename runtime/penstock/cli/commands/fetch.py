"""`penstock fetch`: the init container of a pod whose program is a file in storage, or a commit of a git repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fetch(
    url: Annotated[
        str, typer.Argument(help="The file: https://, s3:// or file://. Or the git repository.", show_default=False)
    ],
    into: Annotated[Path, typer.Option("--into", help="The folder for its content.")],
    sha256: Annotated[str, typer.Option("--sha256", help="Checksum of the file, as 64 hexadecimal digits.")] = "",
    commit: Annotated[str, typer.Option("--commit", help="Commit of the repository, as 40 hexadecimal digits.")] = "",
    path: Annotated[str, typer.Option("--path", help="Folder in the repository whose content to fetch.")] = "",
    username: Annotated[str, typer.Option(envvar="PENSTOCK_GIT_USERNAME", hidden=True)] = "",
    password: Annotated[str, typer.Option(envvar="PENSTOCK_GIT_PASSWORD", hidden=True)] = "",
) -> None:
    """Download a program, check it, and unpack it into a folder.

    A git server gets the user name and the password in PENSTOCK_GIT_USERNAME and PENSTOCK_GIT_PASSWORD. Exits with 1 if
    the program cannot be used.
    """
    if bool(sha256) == bool(commit):
        raise typer.BadParameter("set one of --sha256 or --commit")
    if commit:
        from penstock.common.program.git import Credentials, fetch_commit

        fetch_commit(url, commit, path, into, Credentials(username, password) if password else None)
    else:
        from penstock.common.program.fetch import fetch_program

        fetch_program(url, sha256, into)
    typer.echo(f"{url} is in {into}")
