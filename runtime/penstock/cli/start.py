"""The program `penstock`: the command line, but for a deployed worker.

A worker's process is there in every pod of every job, and all it does is start an executor and wait. What reads command lines is a third of its memory,
so it reads its own, as the operator writes it. Anything else in it is left to the command line to explain.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    asked = worker_arguments(sys.argv[1:])
    if asked is None:
        from penstock.cli.main import app

        app(prog_name="penstock")
        return
    from penstock.common.errors import PenstockError
    from penstock.jobmanager.process.worker_launch import run_worker

    try:
        sys.exit(run_worker(master=asked[0], slots=asked[1]))
    except PenstockError as error:
        from penstock.cli.errors import show_error

        show_error(error)
        sys.exit(1)


def worker_arguments(arguments: Sequence[str]) -> tuple[str, int] | None:
    """Address of the master and number of slots, if that is what is said and nothing else.

    >>> worker_arguments(["worker", "--master", "my-job-master:7077", "--slots", "2"])
    ('my-job-master:7077', 2)
    >>> worker_arguments(["worker", "--help"]), worker_arguments(["worker", "--master", "a:1", "--slots", "0"])
    (None, None)
    """
    if len(arguments) != 5 or arguments[0] != "worker" or (arguments[1], arguments[3]) != ("--master", "--slots"):
        return None
    master, slots = arguments[2], arguments[4]
    host, _, port = master.rpartition(":")
    if not (host and port.isdecimal() and slots.isdecimal() and int(slots) > 0):
        return None
    return master, int(slots)
