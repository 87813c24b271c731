"""`penstock fetch`: the init container of a pod whose program is a file in storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fetch(
    url: Annotated[str, typer.Argument(help="The file: https://, s3:// or file://.", show_default=False)],
    sha256: Annotated[str, typer.Option("--sha256", help="Its checksum, as 64 hexadecimal digits.")],
    into: Annotated[Path, typer.Option("--into", help="The folder for its content.")],
) -> None:
    """Download a program, check its SHA-256, and unpack it into a folder. Exits with 1 if it cannot be used."""
    from penstock.common.program.fetch import fetch_program

    fetch_program(url, sha256, into)
    typer.echo(f"{url} is in {into}")
