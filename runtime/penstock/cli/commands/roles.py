"""`penstock master|worker|check`: the commands that the containers of a deployment run."""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import redirect_stdout
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli.application import OPTIONS_FIRST
from penstock.cli.configuration import Definitions, parse_definitions, split_definitions
from penstock.cli.engine import launcher, worker_launcher
from penstock.cli.errors import UsageError
from penstock.common.errors import PenstockError
from penstock.common.logs.redaction import hide_own, traceback_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.cli.engine import Launcher

Entry = Annotated[
    str,
    typer.Option("--entry", metavar="SCRIPT|MODULE:FUNCTION", help="The program: a file, or a function of a module."),
]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments of the program.")]

BEFORE_RELEASE = "PENSTOCK_CHECK_BEFORE_RELEASE"
"""Environment variable: a master that waits for its release checks its program first. An engine without this feature ignores it."""
CHECK_REPORTS = "penstock has checked the program: "
"""Start of the line with the report of that check. The operator reads it in the log."""
UIDS_OPTIONS = ("-n", "--allow-non-restored-state")  # as `penstock run` has them


def spread(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Repeat an option that has several values, because the parser supports only one value per option.

    >>> spread(["--uid", "a", "b", "--fresh", "-u", "c", "d", "--", "e"], ["-u", "--uid"])
    ['--uid', 'a', '--uid', 'b', '--fresh', '-u', 'c', '-u', 'd', '--', 'e']
    """
    result: list[str] = []
    option = ""
    expects_first = takes_more = False
    for n, word in enumerate(words):
        if word == "--":
            return [*result, *words[n:]]
        if word in options:
            option, expects_first, takes_more = word, True, False
        elif expects_first:
            expects_first, takes_more = False, True
        elif takes_more and not word.startswith("-"):
            result.append(option)
        else:
            takes_more = False
        result.append(word)
    return result


class SpreadCommand(TyperCommand):
    """Command that accepts `--allow-non-restored-state UID UID …`, also as `-n UID UID …`. It shows how to name the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: the context class is private to typer
        own_args = args[: args.index("--")] if "--" in args else args
        names = {word.partition("=")[0] for word in own_args}
        if not ctx.resilient_parsing and names.isdisjoint(("--entry", *ctx.help_option_names)):
            program = next((word for word in own_args if word.endswith(".py")), "job.py")
            start = " --fresh" if ctx.info_name == "master" else ""
            raise UsageError(
                "the option --entry is missing. It names the program",
                remedy=f"penstock {ctx.info_name} --entry {program}{start}",
            )
        return super().parse_args(ctx, spread(args, UIDS_OPTIONS))


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("check", cls=SpreadCommand, context_settings=OPTIONS_FIRST)(check)
    app.command("master", cls=SpreadCommand, context_settings=OPTIONS_FIRST)(master)
    app.command("worker")(worker)


def _check_one_start(options: Mapping[str, object]) -> None:
    """Raise `UsageError` unless exactly one of the options has a value."""
    used = [name for name, value in options.items() if value]
    if len(used) != 1:
        raise UsageError(
            f"{' and '.join(used)} exclude each other"
            if used
            else "no option says where the state of the job comes from",
            remedy="pass exactly one of --restore PATH, --restore-latest, --fresh and --when-released",
        )


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
        bool, typer.Option("--fresh", help="Start with empty state. Fails if the job id has checkpoints.")
    ] = False,
    when_released: Annotated[
        bool,
        typer.Option(
            "--when-released",
            help="Start, then wait for the record `release` in the checkpoint folder of the job id. The record states the "
            "snapshot to start from.",
        ),
    ] = False,
    allow_non_restored_state: Annotated[
        list[str] | None,
        typer.Option(*UIDS_OPTIONS, metavar="UID...", help="Uids of operators whose state may be dropped."),
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option("--job-id", metavar="ID", help="Id of the job. It is also the name of its checkpoint folder."),
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", min=1, help="Parallelism of the job.")
    ] = None,
    define: Definitions = None,
) -> None:
    """Run the JobManager of one job. Exactly one of --restore, --restore-latest, --fresh and --when-released selects its start."""
    _check_one_start(
        {"--restore": restore, "--restore-latest": restore_latest, "--fresh": fresh, "--when-released": when_released}
    )
    engine, configuration = launcher(), parse_definitions(define)
    ended = engine.run_cluster(entry=entry, configuration=configuration)
    if ended is not None:
        raise typer.Exit(ended)
    checked: dict[str, Any] = {}
    if when_released and job_id and os.environ.get(BEFORE_RELEASE):
        checked["is_admitted"] = _check_in_fork(engine, job_id, entry, args or [], parallelism, configuration)
    code = engine.run_master(
        entry=entry,
        args=args or [],
        restore=restore,
        restore_latest=restore_latest,
        fresh=fresh,
        when_released=when_released,
        allow_non_restored_state=allow_non_restored_state or [],
        job_id=job_id,
        parallelism=parallelism,
        configuration=configuration,
        **checked,
    )
    raise typer.Exit(code)


def _check_in_fork(
    engine: Launcher,
    job_id: str,
    entry: str,
    args: Sequence[str],
    parallelism: int | None,
    configuration: Mapping[str, str],
) -> Callable[[], bool]:
    """Check the program in a separate process, unless the job was already released. Return a function that waits for
    the check, and returns whether the program may run.

    If storage cannot tell whether the job was released, the program may run in spite of problems. The master reads the
    release again later.
    """

    def check_program() -> bool:
        is_known = True
        try:
            if engine.is_released(job_id=job_id, configuration=configuration):
                return True
        except PenstockError:
            is_known = False
        report = _report(entry, args, parallelism, None, [], configuration)
        typer.echo(f"{CHECK_REPORTS}{json.dumps(report)}")
        return bool(report["ok"]) or not is_known

    return engine.fork_check(check_program)


def worker(
    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="HOST:PORT",
            help="Host and port at which workers register with the master. Separate several masters by commas.",
        ),
    ],
    slots: Annotated[int, typer.Option("--slots", min=1, help="Slots of this TaskManager.")] = 1,
) -> None:
    """Run a TaskManager."""
    for address in master.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"--master {address} is not HOST:PORT", remedy="write --master my-job-master:7077")
    raise typer.Exit(worker_launcher().run_worker(master=master, slots=slots))


class CheckFormat(StrEnum):
    json = "json"
    text = "text"


def check(
    entry: Entry,
    args: Arguments = None,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", min=1, help="Parallelism of the job.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="PATH", help="Savepoint or checkpoint from which the program would start."),
    ] = None,
    allow_non_restored_state: Annotated[
        list[str] | None,
        typer.Option(*UIDS_OPTIONS, metavar="UID...", help="Uids of operators whose state may be dropped."),
    ] = None,
    output: Annotated[CheckFormat, typer.Option("--format", help="Format of the result.")] = CheckFormat.text,
    define: Definitions = None,
) -> None:
    """Check that a program can be built, and started from a savepoint, without running it. Exit code 1 if it cannot."""
    report = _report(entry, args or [], parallelism, against, allow_non_restored_state or [], split_definitions(define))
    if output is CheckFormat.json:
        typer.echo(json.dumps(report))
    else:
        _show(report)
    raise typer.Exit(0 if report["ok"] else 1)


def _report(
    entry: str,
    args: Sequence[str],
    parallelism: int | None,
    against: str | None,
    allow_non_restored_state: Sequence[str],
    configuration: Mapping[str, str],
) -> dict[str, Any]:
    """Return the report without secrets. The program's prints go to stderr."""
    with redirect_stdout(sys.stderr):
        report = _check(entry, args, parallelism, against, allow_non_restored_state, configuration)
        for found in (*report["problems"], *report["warnings"], *report["state_changes"]):
            found.update((key, hide_own(found[key])) for key in ("message", "remedy") if found.get(key))
    return report


def _check(
    entry: str,
    args: Sequence[str],
    parallelism: int | None,
    against: str | None,
    allow_non_restored_state: Sequence[str],
    configuration: Mapping[str, str],
) -> dict[str, Any]:
    """Return the engine's report. An error that the engine did not catch becomes a problem, so that the output is always JSON."""
    allowed = {"allow_non_restored_state": allow_non_restored_state} if allow_non_restored_state else {}
    try:
        found = launcher().check(
            entry=entry, args=args, parallelism=parallelism, against=against, configuration=configuration, **allowed
        )
        return {
            "ok": bool(found["ok"]),
            "problems": list(found["problems"]),
            "warnings": list(found.get("warnings", ())),
            "state_changes": list(found.get("state_changes", ())),
            "not_looked_at": list(found.get("not_looked_at", ())),
            "graph": found.get("graph"),
        }
    except PenstockError as error:
        return _failed(error.code, error.message, error.remedy, error.operator)
    except Exception as error:
        sys.stderr.write(traceback_of(error))
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"the program raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        return _failed("PROGRAM_RAISED", message, "correct the program. The stack trace is on stderr", "")


def _failed(code: str, message: str, remedy: str, operator: str) -> dict[str, Any]:
    problem = {"code": code, "message": message, "remedy": remedy, "operator": operator, "location": ""}
    return {"ok": False, "problems": [problem], "warnings": [], "not_looked_at": [], "state_changes": [], "graph": None}


def _show(report: Mapping[str, Any]) -> None:
    for problem in report["problems"]:
        where = f" (operator {problem['operator']})" if problem.get("operator") else ""
        typer.secho(f"{problem['code']}: {problem['message']}{where}", fg=typer.colors.RED)
        if problem.get("location"):
            typer.echo(f"  at: {problem['location']}")
        if problem.get("remedy"):
            typer.secho(f"  remedy: {problem['remedy']}", fg=typer.colors.YELLOW)
    for warning in report.get("warnings", ()):
        typer.secho(f"{warning['code']}: {warning['message']}", fg=typer.colors.YELLOW)
        typer.secho(f"  remedy: {warning['remedy']}", fg=typer.colors.YELLOW)
    for change in report.get("state_changes", ()):
        where = f" (operator {change['operator']})" if change["operator"] else ""
        typer.secho(f"state: {change['message']}{where}", fg=typer.colors.YELLOW)
    for unseen in report["not_looked_at"]:
        typer.secho(
            f"not checked (operator {unseen['operator']}): states that {unseen['statement']} may declare",
            fg=typer.colors.YELLOW,
        )
    for node in (report["graph"] or {}).get("nodes", []):
        typer.echo(f"  {node.get('description', node.get('id'))}  x{node.get('parallelism', '?')}")
    if report["ok"]:
        typer.secho("The program can be started.", fg=typer.colors.GREEN)
