"""`penstock doctor`: whether jobs can run on this machine, and what to do where they cannot."""

from __future__ import annotations

import typer

from penstock.cli.configuration import Definitions, parse_definitions

_SIGNS = {"good": "ok     ", "doubtful": "careful", "bad": "BAD    "}


def doctor(define: Definitions = None) -> None:
    """Look at what jobs need: Python, Java, memory, disk, names, ports, the checkpoint storage. Exits with 1 if no job can run.

    Goes by `penstock.yaml` (PENSTOCK_CONF_DIR) and -D, as `penstock master` does.
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
