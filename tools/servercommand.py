"""A server that outlives the command that started it: ``start``, ``status`` and ``stop``, with its state in a directory.

What clients need is printed as ``export`` lines, by ``start`` and ``status``. The server's processes are told apart by their
ids and starting times, so that ``stop`` ends no other that has got the id since.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tools import processes
from tools.errors import ToolError

Start = Callable[[argparse.Namespace], tuple[dict[str, str], Iterable["subprocess.Popen[bytes]"]]]
_PATIENCE = 10.0
"""Seconds until a server that was asked to end is killed."""


class ServerCommand:
    """
    ``start`` gets the options and starts the server: what its clients need, by the names of environment variables, and
    its processes. ``parser`` takes the server's own options.
    """

    def __init__(self, program: str, description: str, start: Start) -> None:
        self.parser = argparse.ArgumentParser(prog=program, description=description)
        self.parser.add_argument("verb", choices=["start", "stop", "status"])
        self.parser.add_argument("--state-dir", type=Path, required=True, help="what it stores, its logs, its keys")
        self._start = start

    def run(self, arguments: list[str] | None = None) -> int:
        """The exit code."""
        options = self.parser.parse_args(arguments)
        state: Path = options.state_dir
        try:
            if options.verb == "stop":
                _stop(state)
                return 0
            exports = _running(state)
            if options.verb == "start" and exports is None:
                exports, started = self._start(options)
                _keep(state, exports, started)
        except ToolError as error:
            print(f"{error.code}: {error}", file=sys.stderr)
            return 1
        if exports is None:
            print("not running")
            return 1
        for name, value in exports.items():
            print(f"export {name}={value}")
        return 0


def _references(state: Path) -> list[Path]:
    return sorted(state.glob("process-*.json"))


def _running(state: Path) -> dict[str, str] | None:
    """The environment of its clients; None when nothing of it runs."""
    known = [processes.load(path) for path in _references(state)]
    if not any(process is not None and process.alive() for process in known):
        return None
    exports: dict[str, str] = json.loads((state / "env.json").read_text())
    return exports


def _keep(state: Path, exports: dict[str, str], started: Iterable[subprocess.Popen[bytes]]) -> None:
    path = state / "env.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(exports, indent=1))
    for number, process in enumerate(started):
        processes.save(state / f"process-{number}.json", processes.of(process.pid))
        # from here on it is nobody's child: told apart by its process id, ended by ``stop``
        process.returncode = 0


def _stop(state: Path) -> None:
    for path in _references(state):
        process = processes.load(path)
        if process is not None:
            process.end(patience=_PATIENCE)
        path.unlink()
    (state / "env.json").unlink(missing_ok=True)
