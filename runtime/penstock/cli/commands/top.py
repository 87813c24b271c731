"""`penstock top` shows the live view of a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.access.connection import DEFAULT_MASTER, Master, TokenFile, connect
from penstock.cli.errors import MasterUnreachable, RequestFailed
from penstock.common.job_status import GLOBALLY_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli.client import RestClient


def top(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="Id of the job, the beginning of the id, or the job's name. Optional if one job runs."
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("-i", "--interval", min=0.1, metavar="SECONDS", help="Time between two updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one update and exit.")] = False,
    master: Master = DEFAULT_MASTER,
    token_file: TokenFile = None,
) -> None:
    """Watch a job until it ends or Ctrl-C: epochs, records/s, watermark, lag, checkpoints, events."""
    from penstock.cli.live import LiveView

    client = connect(master, token_file)
    job_id = client.find_job(job).jid if job is not None else _only_job(client)

    def poll() -> Mapping[str, Any]:
        return client.progress(job_id).model_dump(by_alias=True)

    view = LiveView(poll, interval=interval)
    if once:
        view.show_once()
    else:
        last = view.run()
        if view.problem and (last is None or last.state not in GLOBALLY_TERMINAL):
            raise MasterUnreachable(
                view.problem, remedy="check whether the JobManager runs. Its log has the reason if it ended"
            )


def _only_job(client: RestClient) -> str:
    running = [job for job in client.jobs() if job.state not in GLOBALLY_TERMINAL]
    if len(running) == 1:
        return running[0].jid
    if running:
        names = ", ".join(f"{job.jid} ({job.name})" for job in running)
        raise RequestFailed(
            f"{len(running)} jobs run at {client.url}: {names}", remedy="choose a job: penstock top JOB"
        )
    raise RequestFailed(f"no job runs at {client.url}", remedy="see `penstock list -a`")
