"""The check of a program by its own master, while the master's cluster starts.

Problem: a separate pod for `penstock check` delays the first start of a job by the start of a container and the imports of the engine.

Solution: the master forks a process for the check, before it has threads. The process shares the imported modules, and prints the report of
`penstock check` to the log of the master. The program's side effects stay in that process. The master runs the program only after the check
has passed. The operator reads the report in the log, and then releases the job (`penstock.checkpoint.leadership.release`). A job that is
already released was checked before, so a master that restarts does not check again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from penstock.common.errors import InvalidJob
from penstock.common.logs.redaction import traceback_of

BEGINS = "penstock checks the program before its release"
"""Line in the log that shows the operator that this engine checks the program. The operator knows the text."""
_REFUSED = 1
_NO_REPORT = 70
"""Exit code of a check that could not report: EX_SOFTWARE of sysexits.h."""


def fork_check(check: Callable[[], bool]) -> Callable[[], bool]:
    """Run the check in a forked process. Return a function that waits for it and returns whether it has passed.

    Args:
        check: function that prints the report and returns whether the program may run.

    The returned function raises `InvalidJob` if the program ended the process of the check, which then has no result.
    """
    print(BEGINS, file=sys.stderr, flush=True)
    pid = os.fork()
    if pid == 0:
        os._exit(_exit_code(check))

    def has_passed() -> bool:
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, _REFUSED):
            raise InvalidJob(
                f"the program ended the process that checks it ({_described(code)})",
                remedy="the program must reach env.execute(...) without ending its process",
            )
        return code == 0

    return has_passed


def _exit_code(check: Callable[[], bool]) -> int:
    try:
        return 0 if check() else _REFUSED
    except BaseException as error:  # also SystemExit: the process must not continue as a second master
        sys.stderr.write(traceback_of(error))
        return _NO_REPORT
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _described(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
