"""`penstock validate` checks manifests and SQL files without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[
    list[Path],
    typer.Argument(help="YAML files, folders with *.yaml and *.yml files, or SQL files.", show_default=False),
]


def validate(files: Files) -> None:
    """Check manifests of FlinkJobs and FlinkSnapshots, or SQL files, without a cluster. Exits with 1 if one has a problem.

    It applies the rules of the API server and of the operator. It also reports fields and configuration keys that do not exist, which the
    API server ignores. Documents of other kinds are skipped. It prints `FILE:LINE: problem`, and the Secrets that the jobs need.

    The planner compiles the statements of an SQL file, and nothing runs.
    """
    scripts = [file for file in files if file.suffix == ".sql"]
    is_bad = False
    for script in scripts:
        is_bad |= not _is_valid_sql(script)
    found = [file for named in files if named not in scripts for file in _yaml_files(named)]
    if scripts and not found:
        raise typer.Exit(int(is_bad))
    from penstock_operator.api.manifest_check import check_manifests

    manifests, secrets = 0, set()
    for file in found:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            typer.echo(f"{file}: {error}", err=True)
            is_bad = True
            continue
        if "penstock.dev/" not in text:
            continue
        report = check_manifests(text)
        manifests += len(report.manifests)
        secrets |= report.secrets
        for finding in report.findings:
            typer.echo(f"{file}:{finding.line}: {finding}", err=True)
        is_bad |= bool(report.findings)
    if is_bad:
        raise typer.Exit(1)
    typer.echo(
        f"{manifests} manifest{'' if manifests == 1 else 's'} in {len(found)} file{'' if len(found) == 1 else 's'}: no problem"
    )
    if secrets:
        typer.echo(f"Secrets that must exist: {', '.join(sorted(secrets))}")


def _yaml_files(named: Path) -> list[Path]:
    """Return the YAML files of a folder, or the file itself."""
    if not named.is_dir():
        return [named]
    return sorted(file for file in named.rglob("*") if file.suffix in (".yaml", ".yml"))


def _is_valid_sql(file: Path) -> bool:
    """Compile the statements of an SQL file as `penstock run` does, and print the problems or the name of the job."""
    from penstock.cli.engine import launcher

    report = launcher().check(entry=str(file), args=[], parallelism=None, against=None, configuration={})
    for problem in report["problems"]:
        typer.echo(f"{file}: {problem['message']}\n  remedy: {problem['remedy']}", err=True)
    if report["ok"]:
        typer.echo(f"{file}: no problem")
    return bool(report["ok"])
