"""`penstock master|worker|check`: what the containers of a deployment run."""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import redirect_stdout
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.configuration import Definitions, parse_definitions
from penstock.cli.engine import launcher, worker_launcher
from penstock.cli.errors import UsageError
from penstock.common.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Entry = Annotated[
    str,
    typer.Option("--entry", metavar="SCRIPT|MODULE:FUNCTION", help="The program: a file, or a function of a module."),
]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the program.")]

UIDS_OPTION = "--allow-non-restored-state"


def spread(words: Sequence[str], option: str) -> list[str]:
    """Repeat an option that is given several values: the parser knows only one value per option.

    >>> spread(["--uid", "a", "b", "--fresh", "--", "c"], "--uid")
    ['--uid', 'a', '--uid', 'b', '--fresh', '--', 'c']
    """
    result: list[str] = []
    expects_first = takes_more = False
    for n, word in enumerate(words):
        if word == "--":
            return [*result, *words[n:]]
        if word == option:
            expects_first, takes_more = True, False
        elif expects_first:
            expects_first, takes_more = False, True
        elif takes_more and not word.startswith("-"):
            result.append(option)
        else:
            takes_more = False
        result.append(word)
    return result


class SpreadCommand(TyperCommand):
    """A command that takes `--allow-non-restored-state UID UID …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: the context class is private to typer
        return super().parse_args(ctx, spread(args, UIDS_OPTION))


def master(
    entry: Entry,
    args: Arguments = None,
    restore: Annotated[
        str | None, typer.Option("--restore", metavar="PATH", help="Start from this savepoint or checkpoint.")
    ] = None,
    restore_latest: Annotated[
        bool, typer.Option("--restore-latest", help="Start from the newest complete checkpoint of the job id.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start with empty state, unless the job id has checkpoints.")
    ] = False,
    when_released: Annotated[
        bool,
        typer.Option(
            "--when-released",
            help="Come up, then wait for the record `release` in the folder of the job id's checkpoints, which says where to start from.",
        ),
    ] = False,
    allow_non_restored_state: Annotated[
        list[str] | None,
        typer.Option(UIDS_OPTION, metavar="UID...", help="The state of these operators may be left behind."),
    ] = None,
    job_id: Annotated[
        str | None, typer.Option("--job-id", metavar="ID", help="Id of the job; its checkpoints' folder.")
    ] = None,
    parallelism: Annotated[int | None, typer.Option("--parallelism", min=1, help="Parallelism of the job.")] = None,
    define: Definitions = None,
) -> None:
    """Be the JobManager of one job. Exactly one of --restore, --restore-latest, --fresh and --when-released says how it starts."""
    given = {
        "--restore": restore,
        "--restore-latest": restore_latest,
        "--fresh": fresh,
        "--when-released": when_released,
    }
    ways = [name for name, value in given.items() if value]
    if len(ways) != 1:
        raise UsageError(
            f"{' and '.join(ways)} exclude each other" if ways else "it is not said where the job's state comes from",
            remedy="give exactly one of --restore PATH, --restore-latest, --fresh and --when-released",
        )
    code = launcher().run_master(
        entry=entry,
        args=args or [],
        restore=restore,
        restore_latest=restore_latest,
        fresh=fresh,
        when_released=when_released,
        allow_non_restored_state=allow_non_restored_state or [],
        job_id=job_id,
        parallelism=parallelism,
        configuration=parse_definitions(define),
    )
    raise typer.Exit(code)


def session(
    local: Annotated[
        bool, typer.Option("--local", help="With workers of its own on this machine, instead of `penstock worker`.")
    ] = False,
    define: Definitions = None,
) -> None:
    """Be a session cluster: a JobManager without a program, which runs those that create_remote_environment sends."""
    raise typer.Exit(launcher().run_session(configuration=parse_definitions(define), local=local))


def worker(
    master: Annotated[str, typer.Option("--master", metavar="HOST:PORT", help="Where the master's workers register.")],
    slots: Annotated[int, typer.Option("--slots", min=1, help="Slots of this TaskManager.")] = 1,
) -> None:
    """Be a TaskManager."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--master {master}: that is no HOST:PORT", remedy="write --master my-job-master:7077")
    raise typer.Exit(worker_launcher().run_worker(master=master, slots=slots))


class CheckFormat(StrEnum):
    json = "json"
    text = "text"


def check(
    entry: Entry,
    args: Arguments = None,
    parallelism: Annotated[int | None, typer.Option("--parallelism", min=1, help="Parallelism of the job.")] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="PATH", help="A savepoint or checkpoint that the program is to start from."),
    ] = None,
    allow_non_restored_state: Annotated[
        list[str] | None,
        typer.Option(UIDS_OPTION, metavar="UID...", help="The state of these operators may be left behind."),
    ] = None,
    output: Annotated[CheckFormat, typer.Option("--format", help="How to write the outcome.")] = CheckFormat.text,
    define: Definitions = None,
) -> None:
    """Prove that a program can be built, and started from a savepoint, without running it. Exit code 0 or 1."""
    with redirect_stdout(sys.stderr):
        report = _check(
            entry, args or [], parallelism, against, allow_non_restored_state or [], parse_definitions(define)
        )
    if output is CheckFormat.json:
        typer.echo(json.dumps(report))
    else:
        _show(report)
    raise typer.Exit(0 if report["ok"] else 1)


def _check(
    entry: str,
    args: Sequence[str],
    parallelism: int | None,
    against: str | None,
    allow_non_restored_state: Sequence[str],
    configuration: Mapping[str, str],
) -> dict[str, Any]:
    """The engine's report; what it could not catch itself becomes a problem too, so that the answer is always JSON."""
    allowed = {"allow_non_restored_state": allow_non_restored_state} if allow_non_restored_state else {}
    try:
        found = launcher().check(
            entry=entry, args=args, parallelism=parallelism, against=against, configuration=configuration, **allowed
        )
        return {
            "ok": bool(found["ok"]),
            "problems": list(found["problems"]),
            "warnings": list(found.get("warnings", ())),
            "not_looked_at": list(found.get("not_looked_at", ())),
            "graph": found.get("graph"),
        }
    except PenstockError as error:
        return _failed(error.code, error.message, error.remedy, error.operator)
    except Exception as error:
        traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"the program raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        return _failed("PROGRAM_RAISED", message, "run it where you can see its output; the trace is on stderr", "")


def _failed(code: str, message: str, remedy: str, operator: str) -> dict[str, Any]:
    problem = {"code": code, "message": message, "remedy": remedy, "operator": operator}
    return {"ok": False, "problems": [problem], "warnings": [], "not_looked_at": [], "graph": None}


def _show(report: Mapping[str, Any]) -> None:
    for problem in report["problems"]:
        where = f" (operator {problem['operator']})" if problem.get("operator") else ""
        typer.secho(f"{problem['code']}: {problem['message']}{where}", fg=typer.colors.RED)
        if problem.get("remedy"):
            typer.secho(f"  remedy: {problem['remedy']}", fg=typer.colors.YELLOW)
    for warning in report.get("warnings", ()):
        typer.secho(f"{warning['code']}: {warning['message']}", fg=typer.colors.YELLOW)
        typer.secho(f"  remedy: {warning['remedy']}", fg=typer.colors.YELLOW)
    for unseen in report["not_looked_at"]:
        typer.secho(
            f"not looked at (operator {unseen['operator']}): states that {unseen['statement']} may declare",
            fg=typer.colors.YELLOW,
        )
    for node in (report["graph"] or {}).get("nodes", []):
        typer.echo(f"  {node.get('description', node.get('id'))}  x{node.get('parallelism', '?')}")
    if report["ok"]:
        typer.secho("The program can be started.", fg=typer.colors.GREEN)
