"""Check whether `make test` can run end-to-end tests on this machine within a few minutes.

Such a machine needs no installation and no build from scratch. On any other machine this program prints the reason and ends with exit code 75
(EX_TEMPFAIL of sysexits.h).

    python -m tests.e2e.here
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tools.devcluster import binaries
from tools.devcluster.plan import state_root
from tools.devcluster.preflight import reasons_against
from tools.errors import ToolError
from tools.images import BASE, is_built

if TYPE_CHECKING:
    from collections.abc import Iterator


LEFT_OUT = 75


def obstacles() -> Iterator[str]:
    """Yield the reasons why the tests cannot run. If the environment variable disables them, yield only this reason."""
    if os.environ.get("PENSTOCK_E2E") == "no":
        yield "PENSTOCK_E2E is no"
        return
    yield from reasons_against("node", state_root("e2e"))
    try:
        if not binaries.MODULE.has(binaries.NODE):
            yield "the programs of the development cluster are not built yet"
    except ToolError as error:
        yield str(error)
    if not is_built(BASE):
        yield "the images are not built yet"


def main() -> int:
    """Return 0 if the tests can run."""
    reason = next(obstacles(), None)
    if reason is not None:
        print(
            f"LEFT OUT, the end-to-end tests: {reason}. make test-e2e runs all of them, and installs and builds their requirements."
        )
        return LEFT_OUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
