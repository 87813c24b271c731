"""The program `penstock`: it runs a deployed worker directly, and everything else through the command line. It imports only what the
command needs.

Every pod of every job has a worker process, which only starts an executor and waits. The parser of the command line
would be a third of the process's memory, so this module parses the worker's arguments itself. It parses only the form
that the operator writes. The command line handles all other arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

PACKAGES = "PENSTOCK_PACKAGES"
"""Environment variable with folders of packages that a pod has installed for its program. These folders come last on
the import path. Workers get the import path from the master.
"""


def main() -> None:
    arguments = worker_arguments(sys.argv[1:])
    if arguments is None:
        sys.path.extend(filter(None, os.environ.get(PACKAGES, "").split(os.pathsep)))
        try:
            _application(sys.argv[1:])(prog_name="penstock")
        except Exception as error:
            from penstock.common.program.extras import missing_package, print_error

            if missing := missing_package(error):
                print_error(missing)
                sys.exit(1)
            from penstock.common.logs.redaction import traceback_of

            sys.stderr.write(traceback_of(error))
            sys.exit(1)
        return
    from penstock.cli.engine import worker_launcher
    from penstock.common.errors import PenstockError

    try:
        sys.exit(worker_launcher().run_worker(master=arguments[0], slots=arguments[1]))
    except PenstockError as error:
        from penstock.cli.errors import exit_code, show_error

        show_error(error)
        sys.exit(exit_code(error))


def _application(arguments: Sequence[str]) -> Callable[..., object]:
    """Return the application with the command that the arguments name, or with all commands."""
    command = arguments[0] if arguments else ""
    if command == "run":
        from penstock.cli.commands.run import register
    elif command == "master":
        from penstock.cli.commands.roles import register
    else:
        from penstock.cli.main import app

        return app
    from penstock.cli.application import new_application

    app = new_application()
    register(app)
    return app


def worker_arguments(arguments: Sequence[str]) -> tuple[str, int] | None:
    """Return the address of the master and the number of slots, or None if the arguments contain anything else.

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
