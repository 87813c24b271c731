"""`penstock doctor` checks whether jobs can run on this machine, and shows how to fix problems."""

from __future__ import annotations

import typer

from penstock.cli.configuration import Definitions, parse_definitions

_SIGNS = {"good": "ok     ", "doubtful": "careful", "bad": "BAD    "}


def doctor(define: Definitions = None) -> None:
    """Check the requirements of jobs: Python, Java, memory, disk, names, ports and the checkpoint storage. Exits with 1 if no job can run.

    It uses `penstock.yaml` (PENSTOCK_CONF_DIR) and -D, as `penstock master` does.
    """
    from penstock.common.configuration import Configuration, load_configuration
    from penstock.jobmanager.process.doctor import examine

    conf = load_configuration().add_all(Configuration(parse_definitions(define)))
    is_bad = False
    for finding in examine(conf):
        typer.echo(f"{_SIGNS[finding.health]}  {finding.subject}: {finding.found}")
        if finding.remedy:
            typer.echo(f"         -> {finding.remedy}")
        is_bad |= finding.health == "bad"
    if is_bad:
        raise typer.Exit(1)
