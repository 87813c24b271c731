"""``python -m tools.servers``: run a server that outlives the command that starts it.

- ``python -m tools.servers NAME start --state-dir DIR`` and options of the server
- ``eval "$(python -m tools.servers NAME status --state-dir DIR)"``
- ``python -m tools.servers NAME stop --state-dir DIR``
"""

from __future__ import annotations

import argparse
import sys

from tools.servers import SERVERS, kind
from tools.servers.base import command


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.servers", description="Real servers for development.")
    parser.add_argument("server", choices=sorted(SERVERS))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="start, status or stop, and options")
    options = parser.parse_args(arguments)
    return command.run(options.server, kind(options.server), options.arguments)


if __name__ == "__main__":
    sys.exit(main())
