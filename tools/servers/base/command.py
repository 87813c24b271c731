"""The commands ``start``, ``status`` and ``stop`` of a server that outlives them, with its state in a directory.

``start`` and ``status`` print the settings for clients as ``export`` lines. The state identifies the server's processes by
id and start time, so that ``stop`` never ends another process that got the same id later.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from tools import processes
from tools.errors import ToolError
from tools.servers.base.server import Server

_PATIENCE = 10.0
"""Seconds between the request to terminate a server and SIGKILL."""


def run(name: str, kind: type[Server], arguments: list[str]) -> int:
    """Run the command line of one kind of server and return the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.servers {name}", description=f"{kind.title} on this machine, for development."
    )
    parser.add_argument("verb", choices=["start", "stop", "status"])
    parser.add_argument("--state-dir", type=Path, required=True, help="directory for data, logs and keys")
    kind.add_options(parser)
    options = parser.parse_args(arguments)
    state: Path = options.state_dir
    try:
        if options.verb == "stop":
            _stop(state)
            return 0
        exports = _running(state)
        if options.verb == "start" and exports is None:
            exports = _start(kind, options)
    except ToolError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    if exports is None:
        print("not running")
        return 1
    for variable, value in exports.items():
        print(f"export {variable}={value}")
    return 0


def _references(state: Path) -> list[Path]:
    return sorted(state.glob("process-*.json"))


def _running(state: Path) -> dict[str, str] | None:
    """Return the environment variables for the clients, or None if no process of the server is running."""
    known = [processes.load(path) for path in _references(state)]
    if not any(process is not None and process.alive() for process in known):
        return None
    exports: dict[str, str] = json.loads((state / "env.json").read_text())
    return exports


def _start(kind: type[Server], options: argparse.Namespace) -> dict[str, str]:
    """Start the server, record its processes, and return the environment variables for the clients."""
    state: Path = options.state_dir
    with ExitStack() as undo:
        server = undo.enter_context(kind.with_options(options))
        server.set_up(options)
        undo.pop_all()
    exports = server.exports()
    path = state / "env.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(exports, indent=1))
    for number, process in enumerate(server.running()):
        processes.save(state / f"process-{number}.json", processes.of(process.pid))
        # detach from the process: ``stop`` finds it by its id, and nothing here waits for it
        process.returncode = 0
    return exports


def _stop(state: Path) -> None:
    for path in _references(state):
        process = processes.load(path)
        if process is not None:
            process.end(patience=_PATIENCE)
        path.unlink()
    (state / "env.json").unlink(missing_ok=True)
