"""``python tools/s3server.py``: an S3 server that outlives the command that started it.

python tools/s3server.py start --state-dir DIR [--bucket NAME]...
eval "$(python tools/s3server.py status --state-dir DIR)"
python tools/s3server.py stop --state-dir DIR
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack

from tools.errors import ToolError
from tools.s3server import ENDPOINT_VARIABLE, S3Server
from tools.servercommand import ServerCommand


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    command = ServerCommand("s3server", "A real S3 server for development.", _start)
    command.parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    command.parser.add_argument("--port", type=int, default=0, help="port to listen on (a free one)")
    command.parser.add_argument("--bucket", action="append", default=[], help="bucket to make; may be repeated")
    return command.run(arguments)


def _start(options: argparse.Namespace) -> tuple[dict[str, str], Iterable[subprocess.Popen[bytes]]]:
    server = S3Server(options.state_dir, options.port, host=options.host)
    if server.external:
        raise ToolError(f"{ENDPOINT_VARIABLE} is set: {server.endpoint_url} runs already", remedy="use it, or unset it")
    server.start()
    if server.process is None:
        raise AssertionError("a server that was started has a process")
    with ExitStack() as undo:
        undo.callback(server.stop)
        for bucket in options.bucket:
            server.create_bucket(bucket)
        undo.pop_all()
    return server.env(), [server.process]
