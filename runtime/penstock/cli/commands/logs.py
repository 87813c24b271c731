"""`penstock logs` shows and follows the logs of the JobManager, the TaskManagers and the functions of jobs."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Job, Master, TokenFile, connect
from penstock.cli.errors import RequestFailed
from penstock.common.job_status import GLOBALLY_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.cli.client import RestClient

JOB_MANAGER = "jobmanager"
FOLLOW_S = 1.0
_PLACE = re.compile(r"\[[^\]]*?: (?P<operator>.*) #\d+, attempt \d+\]: ")
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} |\d\d/\d\d/\d\d \d\d:\d\d:\d\d ")


def logs(
    task_managers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASKMANAGER]...", help="Ids of TaskManagers, or `jobmanager`. Default: all."),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines until Ctrl-C.")] = False,
    operator: Annotated[
        str | None,
        typer.Option(
            "--operator",
            metavar="NAME",
            help="Print only the lines that the code of this operator logged. Name or uid of the operator.",
        ),
    ] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print the standard output instead of the log.")] = False,
    kilobytes: Annotated[
        int, typer.Option("-n", "--kilobytes", min=0, max=100, help="How much of the end of each log to print first.")
    ] = 32,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show the end of the logs. If -f is given, follow them."""
    client = connect(master, token_file)
    tails: dict[str, Tail] = {}
    while True:
        named = task_managers or [JOB_MANAGER, *(worker.id for worker in client.task_managers().taskmanagers)]
        for name in named:
            if name not in tails:
                tails[name] = Tail(client, name, "stdout" if stdout else "log", kilobytes * 1024, operator)
        for name in named:
            _show(tails[name], with_name=len(named) > 1, must_be=bool(task_managers) and not follow)
        if not follow:
            return
        time.sleep(FOLLOW_S)


def _show(tail: Tail, *, with_name: bool, must_be: bool) -> None:
    try:
        for line in tail.lines():
            typer.echo(f"{tail.name} | {line}" if with_name else line)
    except RequestFailed as error:
        if must_be or error.status not in (404, 503):  # a TaskManager that has just ended or has no logs
            raise


class Tail:
    """Lines of one log, from near its end on."""

    def __init__(self, client: RestClient, name: str, file: str, first_bytes: int, operator: str | None) -> None:
        self.name = name
        self._client = client
        self._file = file
        self._at = -max(1, first_bytes)
        self._operator = operator
        self._belongs = False

    def lines(self) -> Iterator[str]:
        """Yield the lines since the last call."""
        while True:
            before = self._at
            text, self._at = self._client.read_log(
                None if self.name == JOB_MANAGER else self.name, self._file, self._at
            )
            yield from self._wanted(text.splitlines())
            if not text or self._at == before:
                return

    def _wanted(self, lines: Iterable[str]) -> Iterator[str]:
        if self._operator is None:
            yield from lines
            return
        for line in lines:
            known = operators_of(line)
            if known is not None:  # otherwise the line continues the previous record
                self._belongs = self._operator in known
            if self._belongs:
                yield line


def operators_of(line: str) -> set[str] | None:
    """Return name and uid of the operator whose code logged the line, if its format contains them. None means that no record begins here.

    >>> operators_of("2026-01-31 12:00:00,123 INFO my.module [orders: Totals #3, attempt 2]: done")
    {'Totals'}
    >>> operators_of("2026-01-31 12:00:00,123 INFO my.module: done"), operators_of("ValueError: 7x")
    (set(), None)
    >>> sorted(operators_of('{"time": "…", "message": "done", "operator": "Totals", "uid": "totals"}'))
    ['Totals', 'totals']
    """
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except ValueError:
            return None
        return {str(record[key]) for key in ("operator", "uid") if record.get(key)}
    if _RECORD.match(line) is None:
        return None
    place = _PLACE.search(line)
    return set() if place is None else {place["operator"]}


def output(
    job: Job,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines until the job ends.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Print the log of the job's JobManager instead.")] = False,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Show what the program of a job on a session cluster has printed."""
    client = connect(master, token_file)
    job_id = client.find_job(job).jid
    position = 0
    while True:
        has_ended = client.state(job_id) in GLOBALLY_TERMINAL
        text, end = client.program_output(job_id, position, log=log)
        typer.echo(text, nl=False)
        if text and end > position:
            position = end
        elif not follow or has_ended:
            return
        else:
            time.sleep(FOLLOW_S)
