"""``python tools/s3server.py``: an S3 server that outlives the command that started it.

python tools/s3server.py start --state-dir DIR [--bucket NAME]...
eval "$(python tools/s3server.py status --state-dir DIR)"
python tools/s3server.py stop --state-dir DIR
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools import processes
from tools.errors import ToolError
from tools.s3server import ENDPOINT_VARIABLE, S3Server


def main(arguments: list[str] | None = None) -> int:
    """The command line; ``start`` and ``status`` print the environment that a client needs, as ``export`` lines."""
    parser = argparse.ArgumentParser(prog="s3server", description="A real S3 server for development.")
    parser.add_argument("verb", choices=["start", "stop", "status"])
    parser.add_argument("--state-dir", type=Path, required=True, help="what it stores, its log, its keys")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (a free one)")
    parser.add_argument("--bucket", action="append", default=[], help="bucket to make; may be repeated")
    options = parser.parse_args(arguments)
    state: Path = options.state_dir
    try:
        if options.verb == "stop":
            _stop(state)
            return 0
        exports = _running(state)
        if options.verb == "start" and exports is None:
            exports = _start(state, host=options.host, port=options.port, buckets=options.bucket)
    except ToolError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    if exports is None:
        print("not running")
        return 1
    for name, value in exports.items():
        print(f"export {name}={value}")
    return 0


def _running(state: Path) -> dict[str, str] | None:
    """The environment of the clients of the server that runs; None when none does."""
    process = processes.load(state / "process.json")
    if process is None or not process.alive():
        return None
    exports: dict[str, str] = json.loads((state / "env.json").read_text())
    return exports


def _start(state: Path, *, host: str, port: int, buckets: list[str]) -> dict[str, str]:
    server = S3Server(state, port, host=host)
    if server.external:
        raise ToolError(f"{ENDPOINT_VARIABLE} is set: {server.endpoint_url} runs already", remedy="use it, or unset it")
    server.start()
    if server.process is None:
        raise AssertionError("a server that was started has a process")
    path = state / "env.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(server.env(), indent=1))
    processes.save(state / "process.json", processes.of(server.process.pid))
    # from here on it is nobody's child: told apart by its process id, ended by ``stop``
    server.process.returncode = 0
    for bucket in buckets:
        server.create_bucket(bucket)
    return server.env()


def _stop(state: Path) -> None:
    process = processes.load(state / "process.json")
    if process is not None:
        process.end(patience=5.0)
    for name in ("process.json", "env.json"):
        (state / name).unlink(missing_ok=True)
