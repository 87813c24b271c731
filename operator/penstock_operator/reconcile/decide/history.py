"""The history of a job that has ended. Its JobManager has written the history to an archive, if the job's configuration
names one. Pure functions.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.reconcile.decide.context import Context

ARCHIVE = "jobmanager.archive.fs.dir"


def history_hint(ctx: Context) -> str:
    """Return a sentence with the command that shows the history. Return an empty string if the job has no archive."""
    running, spec = ctx.status.running, ctx.running_spec or ctx.spec
    folder = str(spec.configuration.get(ARCHIVE) or "") if spec is not None else ""
    if running is None or not folder:
        return ""
    return f". Its history: penstock history show {shlex.quote(folder)} {running.job_id}"
